// What the parts of TuningDb share.
#pragma once

#include <SQLiteCpp/SQLiteCpp.h>
#include <SQLiteCpp/VariadicBind.h>
#include <sqlite3.h>

#include <filesystem>

#include "adamk/profile/tuning_db.h"

namespace adamk {

inline constexpr int kSchemaVersion = 2;
inline constexpr int kApplicationId = 0x61646d6b;   // "admk"

struct TuningDb::State {
  std::filesystem::path path;
  SQLite::Database db;
};

namespace tuning_db {

/// What SQLite threw, with the file and what to do about it.
Error to_error(const std::filesystem::path& path, const SQLite::Exception& exception);

/// Runs `body` (returning a Result) and turns what SQLiteCpp throws into an Error.
template <class Body>
auto guarded(const std::filesystem::path& path, Body&& body) -> decltype(body()) {
  try {
    return body();
  } catch (const SQLite::Exception& exception) {
    return tl::unexpected<Error>(to_error(path, exception));
  }
}

/// `text` that was stored by us, parsed; `what` is for messages.
Result<Json> parse_stored(const std::filesystem::path& path, const std::string& text, const std::string& what);
Result<Plan> plan_of_text(const std::filesystem::path& path, const std::string& text, const std::string& hash);

DeviceIdentity read_device(SQLite::Statement& row, int first_column);
inline constexpr const char* kDeviceColumns =
    "v.name, v.sm, v.sms, v.driver, v.toolkit, v.memory_bytes, v.clock_mhz, v.read_gbps, v.hop_us";

std::map<std::string, int> count_statuses(SQLite::Database& db, std::int64_t run);

}  // namespace tuning_db
}  // namespace adamk
