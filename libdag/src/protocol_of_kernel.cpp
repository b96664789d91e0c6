#include "protocol_of_kernel.h"

#include <algorithm>
#include <string>
#include <utility>

namespace adamk {
namespace {

using K = SyncKind;

/// Fluent, so that a program reads like the code that it describes.
struct Op : SyncOp {
  explicit Op(SyncKind k) { kind = k; }
  Op& every(Each e) { each = e; return *this; }
  Op& by(LaneSet l) { lanes = l; return *this; }
  Op& counted(int u, int o = 0) { use = u, offset = o; return *this; }
  Op& turns(int t) { turn = t; return *this; }
  Op& layers(int l) { layer = l; return *this; }
  Op& later() { after_first = true; return *this; }
  Op& given(When w, int s) { when = w, stage = s; return *this; }
  Op& through(std::vector<ColumnView> v) { views = std::move(v); return *this; }
};

class Writer {
 public:
  Writer(const Model& model, const Schedule& schedule, int sm, TileDag& dag)
      : model_(model), schedule_(schedule), plan_(schedule.plan), bulk_(sm >= 90), dag_(dag), p_(dag.protocol) {}

  void write() {
    declare();
    write_consumer();
    write_loader();
    write_storer();
    write_control();
  }

 private:
  // ---- objects: libcodegen/device/block.cuh and the Schedule -----------------------------------------------------------------

  int barrier(std::string name, int buffers, int arrivals, int copies = 0) {
    p_.barriers.push_back({std::move(name), next_barrier_, buffers, arrivals, copies});
    next_barrier_ += 8 * buffers;
    return static_cast<int>(p_.barriers.size()) - 1;
  }
  int storage(std::string name, MemorySpace space, std::int64_t offset, std::int64_t bytes, int slots = 1, bool by_warp = false) {
    p_.storages.push_back({std::move(name), space, offset, bytes, slots, by_warp});
    return static_cast<int>(p_.storages.size()) - 1;
  }
  int use(std::string name, bool kept = false) {
    p_.uses.push_back({std::move(name), kept});
    return static_cast<int>(p_.uses.size()) - 1;
  }
  void bind(std::string_view name, int storage) {
    const int tensor = dag_.find_tensor(name);
    if (tensor >= 0) dag_.tensors[static_cast<std::size_t>(tensor)].storage = storage;
  }
  int tensor(std::string_view name) const { return dag_.find_tensor(name); }
  int stage(std::string_view name) const { return dag_.find_stage(name); }
  bool fused() const { return schedule_.attention.fused; }

  void declare() {
    const int warps = plan_.consumer_warps;
    // cp.async: every lane's copies complete, and arrive, by themselves; two kinds of lanes stand for them.
    full_ = barrier("ring_full", plan_.ring_stages, bulk_ ? 1 : 0, bulk_ ? 1 : 2);
    empty_ = barrier("ring_empty", plan_.ring_stages, warps);
    partials_full_ = barrier("partials_full", 2, warps);
    partials_empty_ = barrier("partials_empty", 2, 1);
    inputs_ready_ = barrier("inputs_ready", 1, 1);
    attention_full_ = barrier("attention_full", 1, warps);
    attention_empty_ = barrier("attention_empty", 1, 1);
    token_ready_ = barrier("token_ready", 1, 1);
    token_taken_ = barrier("token_taken", 1, warps + 1);

    const SharedMemory& smem = schedule_.smem;
    const int word = storage("token_word", MemorySpace::shared, next_barrier_, 4);
    const std::int64_t residual = smem.barriers + smem.partials, attention = residual + smem.residual;
    const int partials = storage("partials", MemorySpace::shared, smem.barriers, smem.partials / 2, 2, true);
    const int rows = storage("residual", MemorySpace::shared, residual, smem.residual);
    const int scratch = storage("attention", MemorySpace::shared, attention, smem.attention, 1, true);
    const int ring = storage("ring", MemorySpace::shared, attention + smem.attention, smem.ring_stage, plan_.ring_stages, true);
    bind("token", word);
    bind("residual", rows);
    bind("attention.partials", scratch);
    bind("attention.scratch", scratch);
    for (const GemvShape& shape : schedule_.gemvs) {
      bind(std::string(to_string(shape.kind)) + ".ring", ring);
      bind(std::string(to_string(shape.kind)) + ".partials", partials);
    }

    const Workspace& ws = schedule_.workspace;
    p_.workspace_bytes = ws.bytes;
    bind("kv_cache", storage("kv_cache", MemorySpace::global, -1, schedule_.kv_bytes / model_.layers));
    add_edge("qkv", "", ws.qkv, exchange_of(fused() ? StageKind::output : StageKind::attention), 0);
    if (!fused()) add_edge("attention", "attention_sums", ws.attention, exchange_of(StageKind::output), 1);
    add_edge("hidden_mid", "hidden_mid.sums", ws.output, exchange_of(StageKind::gate_up), 2);
    add_edge("ffn", "", ws.gate_up, exchange_of(StageKind::down), 3);
    add_edge("hidden", "hidden.sums", ws.down, exchange_of(StageKind::qkv), 4);
    bind("argmax", storage("argmax", MemorySpace::global, ws.argmax, 16 * std::int64_t{plan_.grid}, 2));

    p_.tag = {model_.layers + 1, 1, 1};
    step_ = use("step", true);
    token_ = use("token");
    fill_ = use("fill");
    tile_ = use("tile");
    pass_ = use("pass");
    input_ = use("input");
  }

  Exchange exchange_of(StageKind reader) const { return plan_.stage(reader).input; }

  struct Edge {
    Exchange kind = Exchange::tagged;
    int counter = -1;
  };
  void add_edge(std::string_view values, std::string_view sums, const Workspace::Edge& at, Exchange kind, int number) {
    const std::int64_t elements = dag_.tensors[static_cast<std::size_t>(tensor(values))].elements;
    bind(values, storage(std::string(values), MemorySpace::global, at.values, (kind == Exchange::tagged ? 4 : 2) * elements));
    if (!sums.empty() && tensor(sums) >= 0)
      bind(sums, storage(std::string(sums), MemorySpace::global, at.sums, 8 * dag_.tensors[static_cast<std::size_t>(tensor(sums))].elements));
    Edge& edge = edges_[number];
    edge.kind = kind;
    if (kind == Exchange::tagged) return;
    const std::int64_t arrivals = kind == Exchange::barrier ? plan_.grid : at.producers;
    storage(std::string(values) + ".counter", MemorySpace::global, at.counter, 4);
    p_.counters.push_back({std::string(values), {arrivals * model_.layers, arrivals, arrivals}});
    edge.counter = static_cast<int>(p_.counters.size()) - 1;
  }

  // ---- operations --------------------------------------------------------------------------------------------------------------

  Op wait(int barrier, int use, int turn) const {
    Op op(K::wait);
    op.barrier = barrier;
    return op.counted(use).turns(turn);
  }
  /// One lane for the warp, after __syncwarp.
  Op arrive(int barrier, int use) const {
    Op op(K::arrive);
    op.barrier = barrier;
    return op.counted(use).by(LaneSet::first);
  }
  Op touch(SyncKind kind, std::string_view name) const {
    Op op(kind);
    op.tensor = tensor(name);
    return op;
  }
  Op sync() const { return Op(K::sync); }
  Op next(int use) const { return Op(K::advance).counted(use); }
  Op on_counter(SyncKind kind, const Edge& edge) const {
    Op op(kind);
    op.counter = edge.counter;
    return op.by(LaneSet::first);
  }

  WarpProgram& program(WarpRole role, int first, int warps) {
    p_.programs.push_back({role, first, warps, {}});
    return p_.programs.back();
  }
  void section(std::string_view name) { p_.programs.back().sections.push_back({name.empty() ? -1 : stage(name), {}}); }
  void add(Op op) { p_.programs.back().sections.back().ops.push_back(std::move(op)); }
  void add(Each each, Op op) { add(op.every(each)); }

  const Edge& from_qkv() const { return edges_[0]; }
  const Edge& from_attention() const { return edges_[1]; }
  const Edge& from_output() const { return edges_[2]; }
  const Edge& from_gate_up() const { return edges_[3]; }
  const Edge& from_down() const { return edges_[4]; }

  /// launcher.cuh, take_token
  void take_token() {
    add(wait(token_ready_, token_, 1));
    add(touch(K::read, "token"));
    add(sync());
    add(arrive(token_taken_, token_));
    add(next(token_));
  }

  // ---- consumer.cuh, attention.cuh ------------------------------------------------------------------------------------------------

  void await_inputs(const Edge& edge, std::string_view reader, bool later) {
    if (edge.kind == Exchange::tagged) return;
    Op waiting = wait(inputs_ready_, input_, 1).given(When::busy, stage(reader));
    Op counting = next(input_).given(When::busy, stage(reader));
    add(later ? waiting.later() : waiting);
    add(later ? counting.later() : counting);
  }
  Op receive(const Edge& edge, std::string_view name) const {
    return touch(edge.kind == Exchange::tagged ? K::poll : K::load, name);
  }
  void receive_slice(const Edge& edge, std::string_view reader, std::string_view name, std::vector<ColumnView> views, int layer) {
    await_inputs(edge, reader, layer < 0 && reader == "qkv");
    Op op = receive(edge, name).through(std::move(views)).layers(layer);
    add(layer < 0 && reader == "qkv" ? op.later() : op);
  }

  void multiply(const std::string& name) {
    add(Each::part, wait(full_, fill_, 1));
    add(Each::part, touch(K::read, name + ".ring").counted(fill_));
    add(Each::part, sync());
    add(Each::part, arrive(empty_, fill_));
    add(Each::part, next(fill_));
    add(Each::task, wait(partials_empty_, tile_, 0));
    add(Each::task, touch(K::write, name + ".partials").counted(tile_));
    add(Each::task, sync());
    add(Each::task, arrive(partials_full_, tile_));
    add(Each::task, next(tile_));
  }

  void write_consumer() {
    program(WarpRole::consumer, 0, plan_.consumer_warps);
    section("embedding");
    take_token();
    const std::int64_t hidden = model_.hidden, q = model_.q_rows(), kv = model_.kv_rows(), ffn = model_.ffn;
    section("qkv");
    receive_slice(from_down(), "qkv", "hidden", {{0, hidden, hidden, 1}}, -1);
    multiply("qkv");
    if (!fused()) attend();
    section("output");
    if (fused()) {
      recompute_attention();
    } else {
      std::vector<ColumnView> values, sums;
      for (int split = 0; split < schedule_.attention.splits; ++split) {
        values.push_back({split * q, q, q, 1});
        sums.push_back({std::int64_t{split} * model_.heads, model_.heads, q, 1});
      }
      receive_slice(from_attention(), "output", "attention", std::move(values), 0);
      if (schedule_.attention.splits > 1) add(touch(K::poll, "attention_sums").through(std::move(sums)));
    }
    multiply("output");
    section("gate_up");
    receive_slice(from_output(), "gate_up", "hidden_mid", {{0, hidden, hidden, 1}}, 0);
    multiply("gate_up");
    section("down");
    std::vector<ColumnView> inputs = {{0, ffn, ffn, 1}};
    if (!plan_.stage(StageKind::gate_up).fused_silu) inputs.push_back({ffn, ffn, ffn, 1});
    receive_slice(from_gate_up(), "down", "ffn", std::move(inputs), 0);
    multiply("down");
    section("head");
    receive_slice(from_down(), "head", "hidden", {{0, hidden, hidden, 1}}, -1);
    multiply("head");
    static_cast<void>(kv);
  }

  /// attend_items. Whoever appends a position is who reads it later.
  void attend() {
    section("attention");
    await_inputs(from_qkv(), "attention", false);
    add(Each::task, touch(K::read, "kv_cache"));
    add(Each::task, receive(from_qkv(), "qkv"));
    add(Each::task, touch(K::write, "kv_cache"));
    add(Each::part, touch(K::read, "kv_cache"));
    add(Each::part, receive(from_qkv(), "qkv"));
    add(Each::part, wait(attention_empty_, pass_, 0));
    add(Each::part, touch(K::write, "attention.partials").counted(pass_));
    add(Each::part, sync());
    add(Each::part, arrive(attention_full_, pass_));
    add(Each::part, next(pass_));
    add(sync());
  }

  /// attend_for_projection: each warp the whole heads of its K slice; one SM and warp appends each KV head.
  void recompute_attention() {
    const std::int64_t q = model_.q_rows(), kv = model_.kv_rows(), dim = model_.head_dim;
    const std::int64_t cache = dag_.tensors[static_cast<std::size_t>(tensor("kv_cache"))].elements;
    const std::vector<ColumnView> positions = {{0, cache, q, cache / model_.kv_heads}};
    await_inputs(from_qkv(), "output", false);
    add(touch(K::read, "kv_cache").through(positions));
    add(receive(from_qkv(), "qkv").through({{0, q, q, dim}, {q, kv, q, dim}, {q + kv, kv, q, dim}}));
    add(touch(K::write, "kv_cache").through(positions));
    add(touch(K::write, "attention.scratch"));
    add(sync());
    add(touch(K::read, "attention.scratch"));
    add(sync());
  }

  // ---- block.cuh: the loader ------------------------------------------------------------------------------------------------------

  void write_loader() {
    program(WarpRole::loader, plan_.consumer_warps, 1);
    const LaneSet lanes = bulk_ ? LaneSet::first : LaneSet::all;
    for (const GemvShape& shape : schedule_.gemvs) {
      const std::string name(to_string(shape.kind));
      section(name);
      add(Each::part, wait(full_, fill_, 1).counted(fill_, -plan_.window).by(lanes));
      add(Each::part, wait(empty_, fill_, 0).by(lanes));
      if (bulk_) {
        Op expect(K::expect);
        expect.barrier = full_;
        add(Each::part, expect.counted(fill_).by(lanes));
      }
      Op copy = touch(K::copy, name + ".ring").counted(fill_).by(lanes);
      copy.barrier = full_;
      add(Each::part, copy);
      add(Each::part, next(fill_));
    }
    section("");
    for (int i = plan_.window; i > 0; --i) add(wait(full_, fill_, 1).counted(fill_, -i).by(lanes));
  }

  // ---- storer.cuh -----------------------------------------------------------------------------------------------------------------

  Op publish(const Edge& edge, std::string_view name) const {
    return touch(edge.kind == Exchange::tagged ? K::publish : K::store, name);
  }
  void publish_done(const Edge& edge, std::string_view producer) {
    if (edge.kind == Exchange::tagged) return;
    add(sync());
    add(on_counter(K::add, edge).given(When::busy, stage(producer)));
  }
  void take_sums(const char* name, std::string_view reader, int layer) {
    if (tensor(name) < 0 || plan_.stage(reader == "qkv" ? StageKind::qkv : reader == "head" ? StageKind::head : StageKind::gate_up)
                                    .norm != NormMode::exchange)
      return;
    Op op = touch(K::poll, name).layers(layer).given(When::busy, stage(reader));
    add(reader == "qkv" ? op.later() : op);
  }
  void take_tile(const std::string& name) {
    add(Each::task, wait(partials_full_, tile_, 1));
    add(Each::task, touch(K::read, name + ".partials").counted(tile_));
    add(Each::task, sync());
    add(Each::task, arrive(partials_empty_, tile_));
    add(Each::task, next(tile_));
  }
  void store_rows(const std::string& name, const Edge& edge, std::string_view to) {
    take_tile(name);
    add(Each::task, publish(edge, to));
    publish_done(edge, name);
  }
  void store_residual(const std::string& name, const Edge& edge, std::string_view to, std::string_view sums) {
    take_tile(name);
    add(Each::task, touch(K::read, "residual"));
    add(Each::task, sync());
    add(Each::task, touch(K::write, "residual"));
    add(Each::task, publish(edge, to));
    if (tensor(sums) >= 0) add(touch(K::publish, sums).by(LaneSet::first));
    publish_done(edge, name);
    add(sync());
  }

  void write_storer() {
    program(WarpRole::storer, plan_.consumer_warps + 1, 1);
    section("embedding");
    take_token();
    add(touch(K::write, "residual"));
    add(sync());
    section("qkv");
    take_sums("hidden.sums", "qkv", -1);
    store_rows("qkv", from_qkv(), "qkv");
    if (!fused()) merge_attention();
    section("output");
    store_residual("output", from_output(), "hidden_mid", "hidden_mid.sums");
    section("gate_up");
    take_sums("hidden_mid.sums", "gate_up", 0);
    store_rows("gate_up", from_gate_up(), "ffn");
    section("down");
    store_residual("down", from_down(), "hidden", "hidden.sums");
    section("head");
    take_sums("hidden.sums", "head", -1);
    take_tile("head");
    section("argmax");
    if (fused()) add(Op(K::fence));   // releases the keys and values this SM appended
    add(touch(K::publish, "argmax").counted(step_).by(LaneSet::first));
    add(next(step_));
  }

  /// store_attention; what one pass publishes of a task's output is published again by none.
  void merge_attention() {
    section("attention");
    add(Each::part, wait(attention_full_, pass_, 1));
    add(Each::part, touch(K::read, "attention.partials").counted(pass_));
    if (schedule_.attention.splits > 1) add(Each::part, touch(K::publish, "attention_sums").by(LaneSet::first));
    add(Each::part, sync());
    add(Each::part, publish(from_attention(), "attention"));
    add(Each::part, sync());
    add(Each::part, arrive(attention_empty_, pass_));
    add(Each::part, next(pass_));
    publish_done(from_attention(), "attention");
  }

  // ---- exchange.cuh, launcher.cuh: controller and launcher ----------------------------------------------------------------------

  void control_edge(const Edge& edge, std::string_view producer, std::string_view reader, int layer) {
    if (edge.kind == Exchange::tagged) return;
    const auto put = [&](Op op) { add(layer < 0 && reader == "qkv" ? op.later() : op); };
    if (edge.kind == Exchange::barrier) put(on_counter(K::add, edge).given(When::idle, stage(producer)));
    Op await = on_counter(K::await, edge).layers(layer);
    put(edge.kind == Exchange::barrier ? await : await.given(When::busy, stage(reader)));
    put(arrive(inputs_ready_, input_).given(When::busy, stage(reader)));
    put(next(input_).given(When::busy, stage(reader)));
  }

  void write_control() {
    program(WarpRole::launcher, plan_.consumer_warps + 2, 1);
    section("embedding");
    add(wait(token_taken_, token_, 0));
    add(sync());
    add(touch(K::write, "token").by(LaneSet::first));
    add(arrive(token_ready_, token_));
    add(next(token_));
    add(sync());
    section("qkv");
    control_edge(from_down(), "down", "qkv", -1);
    if (!fused()) {
      section("attention");
      control_edge(from_qkv(), "qkv", "attention", 0);
    }
    section("output");
    if (fused()) control_edge(from_qkv(), "qkv", "output", 0);
    else control_edge(from_attention(), "attention", "output", 0);
    section("gate_up");
    control_edge(from_output(), "output", "gate_up", 0);
    section("down");
    control_edge(from_gate_up(), "gate_up", "down", 0);
    section("head");
    control_edge(from_down(), "down", "head", -1);
    add(sync());
    section("argmax");
    add(touch(K::poll, "argmax").counted(step_));
    Op shuffle(K::sync);
    shuffle.relaxed = true;
    add(shuffle);   // the best of all
    add(next(step_));
    if (fused()) {
      add(Op(K::fence));   // acquires what the other SMs appended
      add(sync());
    }
  }

  const Model& model_;
  const Schedule& schedule_;
  const Plan& plan_;
  bool bulk_;
  TileDag& dag_;
  Protocol& p_;
  std::int64_t next_barrier_ = 0;
  Edge edges_[5];
  int full_ = 0, empty_ = 0, partials_full_ = 0, partials_empty_ = 0, inputs_ready_ = 0, attention_full_ = 0, attention_empty_ = 0,
      token_ready_ = 0, token_taken_ = 0;
  int step_ = 0, token_ = 0, fill_ = 0, tile_ = 0, pass_ = 0, input_ = 0;
};

}  // namespace

void add_protocol(const Model& model, const Schedule& schedule, int sm, TileDag& dag) { Writer(model, schedule, sm, dag).write(); }

}  // namespace adamk
