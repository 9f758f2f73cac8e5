// SPDX-License-Identifier: Apache-2.0
#include <csignal>
#include <string>

#include <sys/wait.h>
#include <unistd.h>

#include "plumb/schedule/invariant.hpp"
#include "support.hpp"

namespace plumb {
namespace {

TEST_CASE("an invariant that holds builds no text", "[schedule]") {
  bool built = false;
  require(true, [&] {
    built = true;
    return std::string("never");
  });
  CHECK_FALSE(built);
}

TEST_CASE("a broken invariant prints its sentence and aborts", "[schedule]") {
  int ends[2];
  REQUIRE(pipe(ends) == 0);
  const pid_t child = fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    std::signal(SIGABRT, SIG_DFL);  // not the test framework's handler
    dup2(ends[1], STDERR_FILENO);
    require(false, [] { return std::string("chunk 3 got 2 of 4"); });
    _exit(0);
  }
  close(ends[1]);
  std::string text;
  char buffer[256];
  for (ssize_t got = 0; (got = read(ends[0], buffer, sizeof buffer)) > 0;)
    text.append(buffer, static_cast<std::size_t>(got));
  close(ends[0]);
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  CHECK(WIFSIGNALED(status));
  CHECK(WTERMSIG(status) == SIGABRT);
  CHECK(text == "plumb: broken invariant: chunk 3 got 2 of 4\n");
}

}  // namespace
}  // namespace plumb
