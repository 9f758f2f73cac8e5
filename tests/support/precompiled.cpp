// SPDX-License-Identifier: Apache-2.0
// Empty: the source for which the precompiled header of all tests is made (plumb_test_options in
// cmake/PlumbTest.cmake).
