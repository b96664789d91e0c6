#include "tree_builder.h"

#include <utility>

namespace adamk {

Json* TreeBuilder::place(Json value) {
  if (open_.empty()) {
    root_ = std::move(value);
    return &root_;
  }
  Open& parent = open_.back();
  if (parent.node->is_array()) {
    parent.node->push_back(std::move(value));
    return &parent.node->back();
  }
  // ordered_map is a vector; emplace_back skips its linear search, which `keys` has made unnecessary.
  auto& members = parent.node->get_ref<Json::object_t&>();
  members.emplace_back(std::exchange(parent.pending, {}), std::move(value));
  parent.has_key = false;
  return &members.back().second;
}

std::string TreeBuilder::begin(Json container) {
  if (open_.size() >= max_document_depth) return fmt::format("nested deeper than {} levels", max_document_depth);
  // The pointer stays valid: a parent grows only after its open child has ended.
  Json* node = place(std::move(container));
  open_.push_back({node, {}, {}, false});
  return {};
}

std::string TreeBuilder::key(std::string name) {
  Open& object = open_.back();
  if (!object.keys.insert(name).second) return fmt::format("duplicate key '{}'", name);
  object.pending = std::move(name);
  object.has_key = true;
  return {};
}

std::string TreeBuilder::path() const {
  std::string path;
  for (std::size_t i = 0; i + 1 < open_.size(); ++i) {
    const Json& parent = *open_[i].node;
    if (parent.is_array()) {
      path += fmt::format("[{}]", parent.size() - 1);
    } else {
      if (!path.empty()) path += '.';
      path += parent.get_ref<const Json::object_t&>().back().first;
    }
  }
  return path;
}

}  // namespace adamk
