// Builds a Json tree from the events of a JSON or YAML parser; refuses duplicate keys and deep nesting in one place.
#pragma once

#include <string>
#include <unordered_set>
#include <vector>

#include "adamk/base/json.h"

namespace adamk {

inline constexpr std::size_t max_document_depth = 64;

class TreeBuilder {
 public:
  /// Each returns an empty string, or what is wrong ("duplicate key 'a'").
  std::string begin(Json container);  // Json::object() or Json::array()
  void end() { open_.pop_back(); }
  std::string key(std::string name);
  void value(Json scalar) { place(std::move(scalar)); }

  /// True when the innermost open container is an object whose next event must be a key.
  bool wants_key() const { return !open_.empty() && open_.back().node->is_object() && !open_.back().has_key; }
  Json& root() { return root_; }

  /// Path of the innermost open value ("a.b[2]"), for messages.
  std::string path() const;

 private:
  struct Open {
    Json* node;
    std::unordered_set<std::string> keys;  // a set: Json's own look-up is linear, and headers hold thousands of keys
    std::string pending;
    bool has_key = false;
  };
  Json* place(Json value);

  Json root_;
  std::vector<Open> open_;
};

}  // namespace adamk
