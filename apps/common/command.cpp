#include "common/command.h"

#include <cstdio>
#include <exception>

#include "common/terminal.h"

namespace adamk {

namespace {

void report(const std::string& name, std::string_view message) {
  const bool colour = use_colour(stderr);
  fmt::print(stderr, "{}: {}error:{} {}\n", name, colour ? "\x1b[1;31m" : "", colour ? "\x1b[0m" : "", message);
}

}  // namespace

std::string_view version() { return ADAMK_VERSION; }

Command::Command(std::string name, std::string description) : app_(std::move(description), name), name_(std::move(name)) {
  app_.set_version_flag("--version", fmt::format("{} {}", name_, version()), "Print the version and exit");
  app_.require_subcommand(1);
}

CLI::App& Command::add(const std::string& name, const std::string& description, Body body) {
  CLI::App* sub = app_.add_subcommand(name, description);
  add_common(*sub);
  bodies_.emplace_back(sub, std::move(body));
  return *sub;
}

CLI::App& Command::only(Body body) {
  app_.require_subcommand(0);
  add_common(app_);
  bodies_.emplace_back(&app_, std::move(body));
  return app_;
}

void Command::add_common(CLI::App& app) {
  app.add_flag("--json", options_.json, "Print the result as JSON");
  app.add_flag("-q,--quiet", options_.quiet, "No progress and no notes on stderr");
}

int Command::run(int argc, const char* const* argv) {
  try {
    app_.parse(argc, argv);
  } catch (const CLI::Success& success) {  // --help, --version: CLI11 prints them
    return app_.exit(success);
  } catch (const CLI::ParseError& error) {
    report(name_, fmt::format("{} (try {} --help)", error.what(), name_));
    return exit_status(Errc::bad_input);
  }
  for (const auto& [sub, body] : bodies_)
    if (sub->parsed()) return run_body(body);
  return exit_status(Errc::bad_input);
}

int Command::run_body(const Body& body) {
  Result<void> result;
  try {
    result = body();
  } catch (const std::exception& bug) {  // exhaustion, or a bug: say so instead of std::terminate's silence
    report(name_, fmt::format("internal error: {}", bug.what()));
    return exit_status(Errc::machine);
  }
  if (result && std::fflush(stdout) != 0) result = fail(Errc::io, "cannot write the result to standard output");
  if (result) return 0;
  std::fflush(stdout);
  report(name_, result.error().message);
  return exit_status(result.error().code);
}

void add_table_format(CLI::App& app, TableFormat& format) {
  app.add_option_function<std::string>(
         "--format",
         [&format](const std::string& text) {
           if (text == "table") format = TableFormat::text;
           if (text == "markdown") format = TableFormat::markdown;
           if (text == "csv") format = TableFormat::csv;
           if (text == "json") format = TableFormat::json;
         },
         "How to print the table: table, markdown, csv or json")
      ->check(CLI::IsMember({"table", "markdown", "csv", "json"}))
      ->default_str("table");
}

Result<void> print(std::string_view text) {
  const bool written = std::fwrite(text.data(), 1, text.size(), stdout) == text.size();
  const bool ended = !text.empty() && text.back() == '\n';
  if (!written || (!ended && std::fputc('\n', stdout) == EOF))
    return fail(Errc::io, "cannot write the result to standard output");
  return {};
}

Result<void> print_json(const Json& document) {
  // Names read from a driver or a database may hold anything; a broken byte must not stop the report.
  return print(document.dump(2, ' ', false, Json::error_handler_t::replace));
}

Result<void> print_table(const Table& table, TableFormat format, const CommonOptions& options) {
  return print(render(table, options.json ? TableFormat::json : format));
}

void note(const CommonOptions& options, std::string_view text) {
  if (!options.quiet) fmt::print(stderr, "{}\n", text);
}

}  // namespace adamk
