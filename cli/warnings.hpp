// SPDX-License-Identifier: Apache-2.0
//
// warnings.hpp (private): what a user should know of an answer that is given all the same, one line each on stderr.
//
// They are printed when nothing can be refused any more: bad input is one line.
#pragma once

#include <string>
#include <vector>

#include "options.hpp"

namespace plumb::cli {

// Unlikely figures of the cluster's file; parts of the model that its times and bytes leave out.
std::vector<std::string> warnings_of(const Options& options);

void print_warnings(const std::vector<std::string>& warnings);

// Whether times come from the layers of --model.
bool costs_model(const Options& options);

// Of --model, as a JSON list of texts: ["num_nextn_predict_layers: 1 (multi-token prediction)"].
std::string left_out_json(const Options& options);

}  // namespace plumb::cli
