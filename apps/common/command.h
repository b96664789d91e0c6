// What every adamk command shares: flags, how errors are reported, and the exit status.
#pragma once

#include <CLI/CLI.hpp>

#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "adamk/base/json.h"
#include "adamk/base/result.h"
#include "common/table.h"

namespace adamk {

/// Of every flag that takes a seed: JSON files and SQLite keep signed 64-bit integers.
inline constexpr std::uint64_t largest_seed = std::numeric_limits<std::int64_t>::max();

/// Flags that every subcommand takes.
struct CommonOptions {
  bool json = false;    // results on stdout as JSON instead of a table
  bool quiet = false;   // no progress, no notes; errors stay
};

/// One executable with subcommands. A body returns what happened; Command turns that into messages and the exit status.
///
///     Command command("adamk-db", "Ask the tuning database.");
///     std::string database;
///     CLI::App& best = command.add("best", "The fastest plan.", [&] { return run_best(database, command.options()); });
///     best.add_option("--db", database, "Tuning database")->required();
///     return command.run(argc, argv);
class Command {
 public:
  using Body = std::function<Result<void>()>;

  Command(std::string name, std::string description);
  Command(const Command&) = delete;
  Command& operator=(const Command&) = delete;

  /// The subcommand, to add options to; it already has --json and --quiet.
  CLI::App& add(const std::string& name, const std::string& description, Body body);
  /// Instead of subcommands: a program that does one thing. The options go on the app itself.
  CLI::App& only(Body body);
  CLI::App& app() { return app_; }
  const CommonOptions& options() const { return options_; }

  /// Parses and runs. Help and --version go to stdout with status 0; a wrong flag is `<name>: error: ...`, status 2; an
  /// Error of the body is reported the same way with exit_status of its code.
  int run(int argc, const char* const* argv);

 private:
  int run_body(const Body& body);
  void add_common(CLI::App& app);
  CLI::App app_;
  std::string name_;
  CommonOptions options_;
  std::vector<std::pair<CLI::App*, Body>> bodies_;
};

/// Adds `--format table|markdown|csv|json` to a subcommand whose result is a table.
void add_table_format(CLI::App& app, TableFormat& format);

/// The version every command prints.
std::string_view version();

/// To stdout, with a newline when missing. A failed write (disk full, closed pipe) is an Error (io).
Result<void> print(std::string_view text);
Result<void> print_json(const Json& document);
/// `--json` wins over `format`.
Result<void> print_table(const Table& table, TableFormat format, const CommonOptions& options);

/// A line on stderr; nothing when quiet.
void note(const CommonOptions& options, std::string_view text);

}  // namespace adamk
