#include <fmt/ranges.h>

#include <array>
#include <utility>

#include "adamk/dag/protocol.h"

namespace adamk {
namespace {

constexpr std::array<std::string_view, 4> kRoles = {"loader", "consumer", "storer", "launcher"};
constexpr std::array<std::string_view, 2> kSpaces = {"shared", "global"};
constexpr std::array<std::string_view, 14> kKinds = {"wait", "arrive", "expect", "copy", "read", "write", "load",
                                                     "store", "publish", "poll", "add", "await", "sync", "fence"};
constexpr std::string_view kAdvance = "advance";
constexpr std::array<std::string_view, 3> kEach = {"stage", "task", "part"};
constexpr std::array<std::string_view, 2> kLanes = {"all", "first"};
constexpr std::array<std::string_view, 3> kWhen = {"always", "busy", "idle"};

constexpr std::int64_t kMost = std::int64_t{1} << 60;
constexpr std::int64_t kMostSmall = std::int64_t{1} << 20;   // bounds what a hostile file costs

template <class Enum, std::size_t n>
Result<Enum> parse(const std::array<std::string_view, n>& names, const JsonView& view) {
  ADAMK_TRY(const std::string text, view.text());
  for (std::size_t i = 0; i < n; ++i)
    if (names[i] == text) return static_cast<Enum>(i);
  return tl::unexpected(view.error(Errc::bad_input, fmt::format("unknown '{}'; one of {}", text, fmt::join(names, ", "))));
}

/// Members that a file leaves out keep what `value` has.
Result<void> take(const JsonView& object, std::string_view key, int& value, std::int64_t low, std::int64_t high) {
  if (const auto view = object.find(key)) {
    ADAMK_TRY(const std::int64_t number, view->integer(low, high));
    value = static_cast<int>(number);
  }
  return {};
}
Result<void> take(const JsonView& object, std::string_view key, bool& value) {
  if (const auto view = object.find(key)) {
    ADAMK_TRY(value, view->boolean());
  }
  return {};
}
Result<void> must(const JsonView& object, std::string_view key, std::int64_t& value, std::int64_t low, std::int64_t high) {
  ADAMK_TRY(const JsonView view, object.at(key));
  ADAMK_TRY(value, view.integer(low, high));
  return {};
}
Result<void> must(const JsonView& object, std::string_view key, int& value, std::int64_t low, std::int64_t high) {
  std::int64_t wide = 0;
  ADAMK_CHECK(must(object, key, wide, low, high));
  value = static_cast<int>(wide);
  return {};
}
Result<std::string> name_of(const JsonView& object) {
  ADAMK_TRY(const JsonView view, object.at("name"));
  return view.text();
}

template <class T, class Read>
Result<std::vector<T>> list(const JsonView& object, std::string_view key, Read read) {
  ADAMK_TRY(const JsonView view, object.at(key));
  ADAMK_TRY(const std::vector<JsonView> items, view.items());
  std::vector<T> found;
  for (const JsonView& item : items) {
    ADAMK_TRY(T value, read(item));
    found.push_back(std::move(value));
  }
  return found;
}

Json rule_to_json(const PhaseRule& rule) { return Json::array({rule.per_step, rule.per_layer, rule.first}); }

Result<PhaseRule> rule_from_json(const JsonView& view) {
  ADAMK_TRY(const std::vector<JsonView> fields, view.items());
  if (fields.size() != 3)
    return tl::unexpected(view.error(Errc::bad_input, "a rule is [per_step, per_layer, first]"));
  constexpr std::int64_t most = std::int64_t{1} << 32;
  PhaseRule rule;
  ADAMK_TRY(rule.per_step, fields[0].integer(-most, most));
  ADAMK_TRY(rule.per_layer, fields[1].integer(-most, most));
  ADAMK_TRY(rule.first, fields[2].integer(-most, most));
  return rule;
}

Json storage_to_json(const Storage& s) {
  Json out;
  out["name"] = s.name;
  out["space"] = kSpaces[static_cast<std::size_t>(s.space)];
  out["offset"] = s.offset;
  out["slot_bytes"] = s.slot_bytes;
  out["slots"] = s.slots;
  out["by_warp"] = s.by_warp;
  return out;
}

Result<Storage> storage_from_json(const JsonView& view) {
  ADAMK_CHECK(view.only_keys({"name", "space", "offset", "slot_bytes", "slots", "by_warp"}));
  Storage s;
  ADAMK_TRY(s.name, name_of(view));
  ADAMK_TRY(const JsonView space, view.at("space"));
  ADAMK_TRY(s.space, parse<MemorySpace>(kSpaces, space));
  ADAMK_CHECK(must(view, "offset", s.offset, -1, kMost));
  ADAMK_CHECK(must(view, "slot_bytes", s.slot_bytes, 0, kMost));
  ADAMK_CHECK(must(view, "slots", s.slots, 1, 4096));
  ADAMK_CHECK(take(view, "by_warp", s.by_warp));
  return s;
}

Json barrier_to_json(const BarrierArray& b) {
  Json out;
  out["name"] = b.name;
  out["offset"] = b.offset;
  out["buffers"] = b.buffers;
  out["arrivals"] = b.arrivals;
  out["copies"] = b.copies;
  return out;
}

Result<BarrierArray> barrier_from_json(const JsonView& view) {
  ADAMK_CHECK(view.only_keys({"name", "offset", "buffers", "arrivals", "copies"}));
  BarrierArray b;
  ADAMK_TRY(b.name, name_of(view));
  ADAMK_CHECK(must(view, "offset", b.offset, 0, kMost));
  ADAMK_CHECK(must(view, "buffers", b.buffers, 1, 4096));
  ADAMK_CHECK(must(view, "arrivals", b.arrivals, 0, kMostSmall));
  ADAMK_CHECK(must(view, "copies", b.copies, 0, kMostSmall));
  return b;
}

Json op_to_json(const SyncOp& op) {
  static const SyncOp plain;
  Json out;
  out["op"] = to_string(op.kind);
  if (op.each != plain.each) out["each"] = kEach[static_cast<std::size_t>(op.each)];
  if (op.lanes != plain.lanes) out["lanes"] = kLanes[static_cast<std::size_t>(op.lanes)];
  const auto put = [&](const char* key, int value, int usual) {
    if (value != usual) out[key] = value;
  };
  put("tensor", op.tensor, plain.tensor);
  put("barrier", op.barrier, plain.barrier);
  put("counter", op.counter, plain.counter);
  put("use", op.use, plain.use);
  put("offset", op.offset, plain.offset);
  put("turn", op.turn, plain.turn);
  put("layer", op.layer, plain.layer);
  if (op.relaxed) out["relaxed"] = true;
  if (op.after_first) out["after_first"] = true;
  if (op.when != plain.when) out["when"] = kWhen[static_cast<std::size_t>(op.when)];
  put("stage", op.stage, plain.stage);
  if (!op.views.empty()) {
    out["views"] = Json::array();
    for (const ColumnView& v : op.views) out["views"].push_back(Json::array({v.begin, v.elements, v.columns, v.unit}));
  }
  return out;
}

Result<ColumnView> column_view_from_json(const JsonView& view) {
  ADAMK_TRY(const std::vector<JsonView> fields, view.items());
  if (fields.size() != 4) return tl::unexpected(view.error(Errc::bad_input, "a view is [begin, elements, columns, unit]"));
  ColumnView v;
  ADAMK_TRY(v.begin, fields[0].integer(0, kMost));
  ADAMK_TRY(v.elements, fields[1].integer(1, std::int64_t{1} << 40));
  ADAMK_TRY(v.columns, fields[2].integer(1, std::int64_t{1} << 20));
  ADAMK_TRY(v.unit, fields[3].integer(1, std::int64_t{1} << 40));
  return v;
}

struct Bounds {
  int tensors, stages, barriers, counters, uses;
};

/// What a kind of operation cannot do without.
Result<void> check_objects(const JsonView& view, const SyncOp& op) {
  const auto need = [&](bool there, const char* key) -> Result<void> {
    if (there) return {};
    return tl::unexpected(view.error(Errc::bad_input, fmt::format("a '{}' needs '{}'", to_string(op.kind), key)));
  };
  switch (op.kind) {
    case SyncKind::wait:
    case SyncKind::arrive:
    case SyncKind::expect:
      ADAMK_CHECK(need(op.barrier >= 0, "barrier"));
      return need(op.use >= 0, "use");
    case SyncKind::copy:
      ADAMK_CHECK(need(op.barrier >= 0, "barrier"));
      ADAMK_CHECK(need(op.use >= 0, "use"));
      return need(op.tensor >= 0, "tensor");
    case SyncKind::add:
    case SyncKind::await: return need(op.counter >= 0, "counter");
    case SyncKind::advance: return need(op.use >= 0, "use");
    case SyncKind::sync:
    case SyncKind::fence: return {};
    default: return need(op.tensor >= 0, "tensor");
  }
}

Result<SyncOp> op_from_json(const JsonView& view, const Bounds& of) {
  ADAMK_CHECK(view.only_keys({"op", "each", "lanes", "tensor", "barrier", "counter", "use", "offset", "turn", "layer", "relaxed",
                              "after_first", "when", "stage", "views"}));
  SyncOp op;
  ADAMK_TRY(const JsonView kind, view.at("op"));
  ADAMK_TRY(const std::string text, kind.text());
  if (text == kAdvance) {
    op.kind = SyncKind::advance;
  } else {
    ADAMK_TRY(op.kind, parse<SyncKind>(kKinds, kind));
  }
  if (const auto each = view.find("each")) {
    ADAMK_TRY(op.each, parse<Each>(kEach, *each));
  }
  if (const auto lanes = view.find("lanes")) {
    ADAMK_TRY(op.lanes, parse<LaneSet>(kLanes, *lanes));
  }
  if (const auto when = view.find("when")) {
    ADAMK_TRY(op.when, parse<When>(kWhen, *when));
  }
  ADAMK_CHECK(take(view, "tensor", op.tensor, 0, of.tensors - 1));
  ADAMK_CHECK(take(view, "barrier", op.barrier, 0, of.barriers - 1));
  ADAMK_CHECK(take(view, "counter", op.counter, 0, of.counters - 1));
  ADAMK_CHECK(take(view, "use", op.use, 0, of.uses - 1));
  ADAMK_CHECK(take(view, "offset", op.offset, -kMostSmall, kMostSmall));
  ADAMK_CHECK(take(view, "turn", op.turn, -8, 8));
  ADAMK_CHECK(take(view, "layer", op.layer, -kMostSmall, kMostSmall));
  ADAMK_CHECK(take(view, "relaxed", op.relaxed));
  ADAMK_CHECK(take(view, "after_first", op.after_first));
  ADAMK_CHECK(take(view, "stage", op.stage, 0, of.stages - 1));
  if (op.when != When::always && op.stage < 0)
    return tl::unexpected(view.error(Errc::bad_input, "'when' needs the 'stage' that it asks about"));
  if (op.each != Each::stage && (op.when != When::always || op.after_first))
    return tl::unexpected(view.error(Errc::bad_input, "'when' and 'after_first' are for operations once a stage"));
  if (view.find("views")) {
    ADAMK_TRY(op.views, list<ColumnView>(view, "views", column_view_from_json));
  }
  ADAMK_CHECK(check_objects(view, op));
  return op;
}

Result<ProgramSection> section_from_json(const JsonView& view, const Bounds& of) {
  ADAMK_CHECK(view.only_keys({"stage", "ops"}));
  ProgramSection section;
  ADAMK_CHECK(take(view, "stage", section.stage, 0, of.stages - 1));
  ADAMK_TRY(section.ops, list<SyncOp>(view, "ops", [&](const JsonView& op) { return op_from_json(op, of); }));
  for (const SyncOp& op : section.ops) {
    if (section.stage < 0 && op.each != Each::stage)
      return tl::unexpected(view.error(Errc::bad_input, "behind the last step there are no tasks"));
  }
  return section;
}

Result<WarpProgram> program_from_json(const JsonView& view, const Bounds& of) {
  ADAMK_CHECK(view.only_keys({"role", "first_warp", "warps", "sections"}));
  WarpProgram program;
  ADAMK_TRY(const JsonView role, view.at("role"));
  ADAMK_TRY(program.role, parse<WarpRole>(kRoles, role));
  ADAMK_CHECK(must(view, "first_warp", program.first_warp, 0, 64));
  ADAMK_CHECK(must(view, "warps", program.warps, 1, 64));
  ADAMK_TRY(program.sections,
            list<ProgramSection>(view, "sections", [&](const JsonView& section) { return section_from_json(section, of); }));
  return program;
}

}  // namespace

std::string_view to_string(WarpRole role) { return kRoles[static_cast<std::size_t>(role)]; }
std::string_view to_string(SyncKind kind) {
  return kind == SyncKind::advance ? kAdvance : kKinds[static_cast<std::size_t>(kind)];
}

Json protocol_to_json(const Protocol& p) {
  Json out;
  out["tag"] = rule_to_json(p.tag);
  out["workspace_bytes"] = p.workspace_bytes;
  for (const char* key : {"storages", "barriers", "counters", "uses", "programs"}) out[key] = Json::array();
  for (const Storage& s : p.storages) out["storages"].push_back(storage_to_json(s));
  for (const BarrierArray& b : p.barriers) out["barriers"].push_back(barrier_to_json(b));
  for (const PhaseCounter& c : p.counters) out["counters"].push_back({{"name", c.name}, {"target", rule_to_json(c.target)}});
  for (const UseCount& u : p.uses) out["uses"].push_back({{"name", u.name}, {"kept", u.kept}});
  for (const WarpProgram& program : p.programs) {
    Json entry;
    entry["role"] = to_string(program.role);
    entry["first_warp"] = program.first_warp;
    entry["warps"] = program.warps;
    entry["sections"] = Json::array();
    for (const ProgramSection& section : program.sections) {
      Json part;
      if (section.stage >= 0) part["stage"] = section.stage;
      part["ops"] = Json::array();
      for (const SyncOp& op : section.ops) part["ops"].push_back(op_to_json(op));
      entry["sections"].push_back(std::move(part));
    }
    out["programs"].push_back(std::move(entry));
  }
  return out;
}

Result<Protocol> protocol_from_json(const JsonView& root, int tensors, int stages) {
  ADAMK_CHECK(root.only_keys({"tag", "workspace_bytes", "storages", "barriers", "counters", "uses", "programs"}));
  Protocol p;
  ADAMK_TRY(const JsonView tag, root.at("tag"));
  ADAMK_TRY(p.tag, rule_from_json(tag));
  ADAMK_CHECK(must(root, "workspace_bytes", p.workspace_bytes, 0, kMost));
  ADAMK_TRY(p.storages, list<Storage>(root, "storages", storage_from_json));
  ADAMK_TRY(p.barriers, list<BarrierArray>(root, "barriers", barrier_from_json));
  ADAMK_TRY(p.counters, list<PhaseCounter>(root, "counters", [](const JsonView& view) -> Result<PhaseCounter> {
    ADAMK_CHECK(view.only_keys({"name", "target"}));
    PhaseCounter counter;
    ADAMK_TRY(counter.name, name_of(view));
    ADAMK_TRY(const JsonView target, view.at("target"));
    ADAMK_TRY(counter.target, rule_from_json(target));
    return counter;
  }));
  ADAMK_TRY(p.uses, list<UseCount>(root, "uses", [](const JsonView& view) -> Result<UseCount> {
    ADAMK_CHECK(view.only_keys({"name", "kept"}));
    UseCount use;
    ADAMK_TRY(use.name, name_of(view));
    ADAMK_CHECK(take(view, "kept", use.kept));
    return use;
  }));
  const Bounds of = {tensors, stages, static_cast<int>(p.barriers.size()), static_cast<int>(p.counters.size()),
                     static_cast<int>(p.uses.size())};
  ADAMK_TRY(p.programs, list<WarpProgram>(root, "programs", [&](const JsonView& view) { return program_from_json(view, of); }));
  return p;
}

}  // namespace adamk
