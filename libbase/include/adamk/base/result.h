// Expected failures as values. A Result carries either a value or an Error whose message names the file, key or
// constraint concerned and says what to do about it; a command turns the code into its exit status.
#pragma once

#include <fmt/format.h>

#include <string>
#include <tl/expected.hpp>
#include <utility>

namespace adamk {

enum class Errc {
  bad_input,     // malformed file, wrong flag, value out of range                    -> exit 2
  unsupported,   // well-formed, but names something adamk does not do               -> exit 2
  infeasible,    // a plan that the target or the model rules out                     -> exit 2
  check_failed,  // the answer is no: a verification or a certificate failed          -> exit 1
  not_found,     // nothing matched                                                   -> exit 1
  io,            // the file system or the database refused                           -> exit 3
  machine,       // no GPU, no driver, no permission                                  -> exit 3
  interrupted,   // SIGINT or SIGTERM, everything finished so far is kept             -> exit 130
};

struct Error {
  Errc code;
  std::string message;
};

template <class T>
using Result = tl::expected<T, Error>;

template <class... Args>
tl::unexpected<Error> fail(Errc code, fmt::format_string<Args...> format, Args&&... args) {
  return tl::unexpected<Error>(Error{code, fmt::format(format, std::forward<Args>(args)...)});
}

/// The exit status of a command that ends with `code`.
constexpr int exit_status(Errc code) {
  switch (code) {
    case Errc::bad_input:
    case Errc::unsupported:
    case Errc::infeasible: return 2;
    case Errc::check_failed:
    case Errc::not_found: return 1;
    case Errc::io:
    case Errc::machine: return 3;
    case Errc::interrupted: return 130;
  }
  return 3;
}

}  // namespace adamk

#define ADAMK_CONCAT_(a, b) a##b
#define ADAMK_CONCAT(a, b) ADAMK_CONCAT_(a, b)

/// `ADAMK_TRY(auto x, f());` binds the value or returns the error to the caller.
#define ADAMK_TRY(declaration, expression) ADAMK_TRY_(ADAMK_CONCAT(adamk_result_, __LINE__), declaration, expression)
#define ADAMK_TRY_(result, declaration, expression)                        \
  auto result = (expression);                                              \
  if (!result) return tl::unexpected<::adamk::Error>(std::move(result).error()); \
  declaration = std::move(*result)

/// The same for an expression whose value is not needed (Result<void> included).
#define ADAMK_CHECK(expression)                                            \
  do {                                                                     \
    auto adamk_check_result = (expression);                                \
    if (!adamk_check_result) return tl::unexpected<::adamk::Error>(std::move(adamk_check_result).error()); \
  } while (false)
