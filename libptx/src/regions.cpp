#include "regions.h"

#include <algorithm>
#include <utility>

namespace adamk::ptx {
namespace {

std::size_t at(int i) { return static_cast<std::size_t>(i); }

int name_index(Regions& regions, const std::string& text) {
  const std::size_t blank = text.find(' ');
  Regions::Name name{text.substr(0, blank), blank == std::string::npos ? "" : text.substr(blank + 1)};
  const auto same = [&](const Regions::Name& other) { return other.role == name.role && other.stage == name.stage; };
  const auto found = std::find_if(regions.names.begin(), regions.names.end(), same);
  if (found != regions.names.end()) return static_cast<int>(found - regions.names.begin());
  regions.names.push_back(std::move(name));
  return static_cast<int>(regions.names.size()) - 1;
}

}  // namespace

Regions find_regions(const PtxBody& body, const Flow& flow) {
  Regions regions;
  regions.names.push_back({"entry", ""});
  regions.of.assign(body.code.size(), 0);
  // By block: markers inside it, and one at its very end.
  std::vector<std::vector<std::pair<int, int>>> inside(flow.blocks.size());
  for (const PtxMarker& marker : body.markers) {
    const int name = name_index(regions, marker.text);
    if (marker.at >= static_cast<int>(body.code.size())) continue;
    int block = flow.block_of[at(marker.at)];
    const bool label_follows = !marker.labelled && std::any_of(body.labels.begin(), body.labels.end(),
                                                               [&](const auto& label) { return label.first == marker.at; });
    if (label_follows && flow.blocks[at(block)].begin == marker.at && block > 0) --block;   // what falls through to it
    inside[at(block)].emplace_back(marker.at, name);
  }
  std::vector<int> leaves(flow.blocks.size(), 0);   // the name at a block's end
  for (const int b : flow.order) {
    const FlowBlock& block = flow.blocks[at(b)];
    int name = block.dominator < 0 ? 0 : leaves[at(block.dominator)];
    std::size_t next = 0;
    for (int i = block.begin; i < block.end; ++i) {
      while (next < inside[at(b)].size() && inside[at(b)][next].first <= i) name = inside[at(b)][next++].second;
      regions.of[at(i)] = name;
    }
    while (next < inside[at(b)].size()) name = inside[at(b)][next++].second;
    leaves[at(b)] = name;
  }
  return regions;
}

}  // namespace adamk::ptx
