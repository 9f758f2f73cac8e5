// SPDX-License-Identifier: Apache-2.0
// catch.hpp: the one place that knows which Catch2 is installed (version 2 or 3). Tests include "support/catch.hpp".
#pragma once

#if __has_include(<catch2/catch_all.hpp>)
#include <catch2/catch_all.hpp>
using Catch::Approx;
#else
#include <catch2/catch.hpp>
#endif
