// SPDX-License-Identifier: Apache-2.0
#include "train_lm/ending.hpp"

#include <new>

#include <c10/util/Exception.h>
#include <fmt/format.h>

#include "exit.hpp"
#include "plumb/comm/transport_error.hpp"
#include "plumb/runtime/run_error.hpp"
#include "plumb/schedule/error.hpp"
#include "train_lm/trainer.hpp"

namespace plumb::lm {

namespace {

Ending make(int code, const char* word, std::string text) {
  for (char& c : text) {
    c = c == '\n' ? ' ' : c;
  }
  return {code, fmt::format("{}: {}", word, text)};
}

}  // namespace

Ending ending_of(const std::exception_ptr& thrown) {
  try {
    std::rethrow_exception(thrown);
  } catch (const cli::UsageError& error) {
    return make(cli::exit_bad_input, "usage", error.what());
  } catch (const InputError& error) {
    return make(cli::exit_bad_input, "config", error.what());
  } catch (const NumericError& error) {
    return make(cli::exit_environment, "numeric", error.what());
  } catch (const RunError& error) {
    return make(cli::exit_environment, to_text(error.kind()), error.what());
  } catch (const TransportError& error) {
    return make(cli::exit_environment, to_text(error.fault().kind), error.what());
  } catch (const std::bad_alloc&) {
    return make(cli::exit_environment, "memory", "not enough memory for a model of this size");
  } catch (const c10::Error& error) {
    const std::string text = error.what_without_backtrace();
    const bool memory = text.find("memory") != std::string::npos;
    return make(cli::exit_environment, memory ? "memory" : "config", text);
  } catch (const std::exception& error) {
    return make(cli::exit_environment, "config", error.what());
  } catch (...) {
    return make(cli::exit_environment, "config", "an unknown exception");
  }
}

}  // namespace plumb::lm
