#include "liveness.h"

#include <algorithm>

namespace adamk::ptx {
namespace {

std::size_t at(int i) { return static_cast<std::size_t>(i); }

/// Predicates have a register file of their own.
int words(PtxType type) { return type == PtxType::pred ? 0 : bytes_of(type) > 4 ? 2 : 1; }

/// A set of registers that knows its size in 32-bit words.
class LiveSet {
 public:
  explicit LiveSet(const PtxBody& body) : body_(&body), live_(body.registers.size(), 0) {}
  void add(int reg) {
    if (live_[at(reg)] == 0) size_ += words(body_->registers[at(reg)].type);
    live_[at(reg)] = 1;
  }
  void remove(int reg) {
    if (live_[at(reg)] != 0) size_ -= words(body_->registers[at(reg)].type);
    live_[at(reg)] = 0;
  }
  void before(const PtxInstruction& i) {
    if (i.guard < 0)
      for (const int r : registers_written(i)) remove(r);
    for (const int r : registers_read(i)) add(r);
  }
  int size() const { return size_; }
  const std::vector<char>& members() const { return live_; }

 private:
  const PtxBody* body_;
  std::vector<char> live_;
  int size_ = 0;
};

}  // namespace

std::vector<int> live_registers(const PtxBody& body, const Flow& flow) {
  std::vector<std::vector<char>> entering(flow.blocks.size(), std::vector<char>(body.registers.size(), 0));
  const auto leaving = [&](int block) {
    LiveSet live(body);
    for (const int to : flow.blocks[at(block)].to)
      for (std::size_t r = 0; r < body.registers.size(); ++r)
        if (entering[at(to)][r] != 0) live.add(static_cast<int>(r));
    return live;
  };
  for (bool changed = true; changed;) {
    changed = false;
    for (auto block = flow.order.rbegin(); block != flow.order.rend(); ++block) {
      LiveSet live = leaving(*block);
      for (int i = flow.blocks[at(*block)].end - 1; i >= flow.blocks[at(*block)].begin; --i) live.before(body.code[at(i)]);
      if (live.members() == entering[at(*block)]) continue;
      entering[at(*block)] = live.members();
      changed = true;
    }
  }
  std::vector<int> counts(body.code.size(), 0);
  for (const int block : flow.order) {
    LiveSet live = leaving(block);
    for (int i = flow.blocks[at(block)].end - 1; i >= flow.blocks[at(block)].begin; --i) {
      counts[at(i)] = live.size();
      live.before(body.code[at(i)]);
    }
  }
  return counts;
}

}  // namespace adamk::ptx
