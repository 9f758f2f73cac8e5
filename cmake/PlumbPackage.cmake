# SPDX-License-Identifier: Apache-2.0
# The CMake package that find_package(plumbline) reads. The modules install their own export sets (PlumbModule.cmake).
include(CMakePackageConfigHelpers)
get_property(components GLOBAL PROPERTY PLUMB_COMPONENTS)
get_property(needs GLOBAL PROPERTY PLUMB_COMPONENT_NEEDS)
list(JOIN components " " components)
set(PLUMB_COMPONENT_TABLE "set(plumbline_components ${components})\n${needs}")
configure_package_config_file(${CMAKE_CURRENT_LIST_DIR}/plumblineConfig.cmake.in
  ${PROJECT_BINARY_DIR}/plumblineConfig.cmake
  INSTALL_DESTINATION ${PLUMB_INSTALL_CMAKEDIR} NO_SET_AND_CHECK_MACRO NO_CHECK_REQUIRED_COMPONENTS_MACRO)
write_basic_package_version_file(${PROJECT_BINARY_DIR}/plumblineConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/plumblineConfig.cmake ${PROJECT_BINARY_DIR}/plumblineConfigVersion.cmake
  DESTINATION ${PLUMB_INSTALL_CMAKEDIR})
install(FILES ${PROJECT_SOURCE_DIR}/LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR})
