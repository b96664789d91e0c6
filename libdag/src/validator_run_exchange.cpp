// What crosses SMs: packets with tags, and plain values behind counters.
#include <fmt/format.h>

#include <algorithm>

#include "validator_run_state.h"

namespace adamk::validation {

std::string ProtocolRun::words(int id, int stretch) const {
  const Stretch& s = stretches_[index(id)][index(stretch)];
  return fmt::format("{}[{}, {})", tensor(id).name, s.begin, s.end);
}

std::uint32_t ProtocolRun::tag(const Warp& w, const SyncOp& op) const {
  const int layer = w.walk.layer() + op.layer;
  return static_cast<std::uint32_t>(p_.tag.at(w.walk.step(), layer < 0 ? layer : model_layer(layer)));
}

/// The stretches that an operation touches; worked out once for each warp and task.
Runs ProtocolRun::stretches(const Warp& w, const SyncOp& op, bool writes) {
  const int task = op.each == Each::stage ? -1 : w.walk.task();
  auto [at, fresh] = runs_.try_emplace({&op, {w.sm, w.local, task}});
  if (!fresh) return at->second;
  const std::vector<Stretch>& all = stretches_[index(op.tensor)];
  Runs runs;
  for (const Region& region : regions(w, op, writes)) {
    const auto first = std::partition_point(all.begin(), all.end(), [&](const Stretch& s) { return s.end <= region.begin; });
    const auto last = std::partition_point(first, all.end(), [&](const Stretch& s) { return s.begin < region.end; });
    if (first != last) runs.emplace_back(static_cast<int>(first - all.begin()), static_cast<int>(last - all.begin()));
  }
  return at->second = std::move(runs);
}

/// What the packets of one version teach whoever has polled them; memory is null when no fence stands before any.
Outside ProtocolRun::lesson(const Exchanged& slot, int id, const Version& version, const Runs& runs) {
  auto [at, fresh] = lessons_.try_emplace({&slot, version, runs});
  if (!fresh) return at->second;
  std::map<int, const Packet*> latest;   // of each SM: it knows all that its earlier ones do
  std::map<int, const Packet*> fenced;
  for (const auto& [first, last] : runs) {
    for (int i = first; i < last; ++i) {
      const Packet& packet = slot.packets[index(i)];
      const int sm = stretches_[index(id)][index(i)].sm;
      if (packet.known && (latest[sm] == nullptr || latest[sm]->write.at < packet.write.at)) latest[sm] = &packet;
      if (packet.released && (fenced[sm] == nullptr || fenced[sm]->write.at < packet.write.at)) fenced[sm] = &packet;
    }
  }
  auto order = std::make_shared<Ticks>(*base_.order);
  for (const auto& [sm, packet] : latest) add_knowledge(*order, *packet->known, false);
  at->second.order = std::move(order);
  if (!fenced.empty()) {
    auto memory = std::make_shared<Ticks>(*base_.memory);
    for (const auto& [sm, packet] : fenced) add_knowledge(*memory, *packet->released, true);
    at->second.memory = std::move(memory);
  }
  return at->second;
}

/// A poll waits for its packets; a load finds what is there, which must be what it needs and visible to it.
bool ProtocolRun::take(Warp& w, const SyncOp& op, int use) {
  const Runs runs = stretches(w, op, false);
  if (runs.empty()) return true;
  const bool polls = op.kind == SyncKind::poll;
  Exchanged& slot = exchanged(op, use);
  const std::optional<Version> version = needed_version(w);
  if (!version) return race(fmt::format("{} takes {}, which nothing has written for it", here(w), tensor(op.tensor).name));
  const std::uint32_t wanted = tag(w, op);
  const auto newer = [&](const Packet& packet) {
    return std::pair(packet.version.step, packet.version.layer) > std::pair(version->step, version->layer);
  };
  for (const auto& [first, last] : runs) {
    for (int i = first; i < last; ++i) {
      const Packet& packet = slot.packets[index(i)];
      if (polls && packet.tagged && packet.tag == wanted) continue;
      if (newer(packet))
        return deadlock(fmt::format("{} still needs {} of {}, which {} of SM {} has overwritten", here(w), words(*version),
                                    words(op.tensor, i), name_of(stretches_[index(op.tensor)][index(i)].sm, packet.write.warp),
                                    stretches_[index(op.tensor)][index(i)].sm));
      if (polls) return false;
    }
  }
  std::array<Outside, 2> outside;
  for (const int lane : {kFirst, kOthers}) outside[index(lane)] = outside_of(w.sm, w.lanes[index(lane)]);
  const auto sees = [&](const Packet& packet, int sm, bool memory) {
    for (const int lane : {kFirst, kOthers}) {
      if (takes_part(op, lane) && !follows(outside[index(lane)], w.lanes[index(lane)], w.sm, sm, packet.write, memory))
        return false;
    }
    return true;
  };
  for (const auto& [first, last] : runs) {
    for (int i = first; i < last; ++i) {
      const Packet& packet = slot.packets[index(i)];
      const int sm = stretches_[index(op.tensor)][index(i)].sm;
      if (packet.version != *version)
        return race(fmt::format("{} takes {} and may find {}, but must find {}", here(w), words(op.tensor, i),
                                words(packet.version), words(*version)));
      if (polls && packet.tag_before == wanted && !sees(packet, sm, false))
        return race(fmt::format("{} polls {} for tag {}, which the packet may still have from its last use", here(w),
                                words(op.tensor, i), wanted));
      if (!polls && !sees(packet, sm, true))
        return race(fmt::format("{} loads {}, but nothing makes sure that {} by {} can be seen", here(w), words(op.tensor, i),
                                words(packet.version), name_of(sm, packet.write.warp)));
    }
  }
  slot.readers[*version][runs].readers.push_back({w.sm, stamp(w, op)});
  if (!polls) return true;
  const Outside taught = lesson(slot, op.tensor, *version, runs);
  if (op.lanes == LaneSet::first) learn(w, kFirst, taught.order, false);
  else w.polled.push_back(taught.order);
  if (taught.memory) w.acquirable.push_back(taught.memory);
  return true;
}

bool ProtocolRun::put(Warp& w, const SyncOp& op, int use) {
  const Runs runs = stretches(w, op, true);
  if (runs.empty()) return true;
  Exchanged& slot = exchanged(op, use);
  const auto known = knowledge(w, op.lanes);
  const int writer = static_cast<int>(&w - all_.data());
  for (const auto& [first, last] : runs) {
    for (int i = first; i < last; ++i) {
      Packet& packet = slot.packets[index(i)];
      const int sm = stretches_[index(op.tensor)][index(i)].sm;
      if (packet.write.warp >= 0 && !follows(known->outside, known->inside, w.sm, sm, packet.write, false) &&
          !(sm == w.sm && packet.write.warp == w.local))
        return race(fmt::format("{} writes {}, and nothing orders that behind {}", here(w), words(op.tensor, i), words(packet.version)));
      const auto lists = slot.readers.find(packet.version);
      if (packet.version != version_here(w) && lists != slot.readers.end()) {
        for (auto& [read, list] : lists->second) {
          const bool reads_it = std::any_of(read.begin(), read.end(), [&](const auto& run) { return run.first <= i && i < run.second; });
          if (!reads_it) continue;
          std::size_t& followed = list.followed[writer];
          for (; followed < list.readers.size(); ++followed) {
            const ReaderList::Reader& reader = list.readers[followed];
            if (follows(known->outside, known->inside, w.sm, reader.sm, reader.stamp, false)) continue;
            return deadlock(fmt::format("{} may overwrite {} with its next version while {} still waits to read {}", here(w),
                                        words(op.tensor, i), name_of(reader.sm, reader.stamp.warp), words(packet.version)));
          }
        }
      }
      // What the parts of a task publish together is there with the last of them.
      if (op.each == Each::part && w.walk.part() + 1 < size_.parts[index(stage_of(w))]) continue;
      packet.tag_before = packet.tag;
      packet.tagged = op.kind == SyncKind::publish;
      packet.tag = packet.tagged ? tag(w, op) : 0;
      packet.version = version_here(w);
      packet.write = stamp(w, op);
      packet.known = packet.tagged ? known : nullptr;
      packet.released = packet.tagged ? w.fenced : nullptr;
    }
  }
  // Readers of what is two versions old are of no more interest.
  while (slot.readers.size() > 3) slot.readers.erase(slot.readers.begin());
  return true;
}

}  // namespace adamk::validation
