#include "defects.h"

#include <algorithm>
#include <functional>
#include <optional>
#include <regex>
#include <stdexcept>
#include <utility>

namespace adamk::emulated {
namespace {

using Lines = std::vector<std::string>;
/// Changes `lines` at `i`, keeping their number, or says that this is no place for it.
using Edit = std::function<bool(Lines& lines, std::size_t i)>;

Lines split(const std::string& text) {
  Lines lines;
  std::size_t begin = 0;
  while (begin < text.size() && text[begin] != '\0') {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    lines.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return lines;
}

/// `pattern` replaced in a line that has it; "$1" stands for what it captured. %dr0 to 3 (32 bits), %dd0 to 3 (64) and %dp0 are free.
Edit replaced(const char* pattern, const char* by) {
  return [expression = std::regex(pattern), by](Lines& lines, std::size_t i) {
    if (!std::regex_search(lines[i], expression)) return false;
    lines[i] = std::regex_replace(lines[i], expression, by);
    return true;
  };
}
Edit deleted(const char* pattern) { return replaced(pattern, ""); }

/// A consumer that gives a ring stage back as soon as it is full, not after it has read it.
bool release_early(Lines& lines, std::size_t i) {
  static const std::regex arrive(R"(^\s*mbarrier\.arrive\.shared\.b64 (%rd\d+), \[(%r\d+)\];)"),
      address(R"(add\.s32 \s*(%r\d+), (%r\d+), (\d+);)"), guard(R"(^\s*@(%p\d+) bra)");
  std::smatch arrives, at, guarded;
  if (!std::regex_search(lines[i], arrives, arrive) || i < 4) return false;
  if (!std::regex_search(lines[i - 2], at, address) || at[1] != arrives[2]) return false;   // empty = full + 8 for each ring stage
  if (!std::regex_search(lines[i - 4], guarded, guard)) return false;
  std::size_t first = i;
  while (first > 0 && lines[first].find("_wait.parity") == std::string::npos) --first;
  if (lines[first].find("[" + at.str(2) + "]") == std::string::npos) return false;          // a wait for something else
  while (first < i && lines[first].find("ld.shared.v4.u32") == std::string::npos) ++first;
  if (first == i) return false;
  const std::string early = "@!" + guarded.str(1) + " mbarrier.arrive.shared.b64 %dd0, [" + at.str(2) + "+" + at.str(3) + "]; ";
  lines[i].clear();
  lines[first].insert(0, early);
  return true;
}

const std::vector<std::pair<std::string, Edit>>& edits() {
  constexpr const char* wait = R"(\{ \.reg \.pred p; mbarrier\.(\S+_wait\.parity\.\S+) p, \[(%r\d+)\], (\S+); selp\.u32 (%r\d+), 1, 0, p; \})";
  constexpr const char* bulk = R"(^\s*cp\.async\.bulk\.(\S+) \[(%r\d+)\], \[(%rd\d+)\], (%r\d+), \[(%r\d+)\], (%rd\d+);)";
  constexpr const char* piece = R"(^\s*cp\.async\.cg\.(\S+) \[(%r\d+)\], \[(%rd\d+)\], 16, (%rd\d+);)";
  constexpr const char* expect = R"(^\s*mbarrier\.arrive\.expect_tx\.(\S+) (%rd\d+), \[(%r\d+)\], (%r\d+);)";
  constexpr const char* init = R"(^\s*mbarrier\.init\.shared\.b64 \[(%r\d+)\], (%r\d+);)";
  constexpr const char* acquire = R"(^\s*ld\.acquire\.gpu\.global\.u32 (%r\d+), (\[%rd\d+\]);)";
  constexpr const char* packet = R"(^\s*st\.relaxed\.gpu\.global\.u64 \[(%rd\d+)\], (%rd\d+);)";
  static const std::vector<std::pair<std::string, Edit>> all = {
      {unreached, replaced(R"(^\s*((mbarrier|bar|red|st|ld|cp|fence|\{ \.reg \.pred p; mbarrier)\.?\S* .*|fence\S*;)$)", "trap; $1")},
      {"fence deleted", deleted(R"(^\s*fence\.acq_rel\.gpu;)")},
      {"fence after initialisation deleted", deleted(R"(^\s*fence\.mbarrier_init\S*;)")},
      {"block barrier deleted", deleted(R"(^\s*bar\.sync\s+\d+;)")},
      {"warp barrier deleted", deleted(R"(^\s*bar\.warp\.sync\s+\S+;)")},
      {"release deleted", deleted(R"(^\s*red\.release\.gpu\.global\.add\.u32 \S+ \S+;)")},
      {"release made relaxed", replaced(R"(^\s*red\.release\.)", "red.relaxed.")},
      {"acquire made relaxed", replaced(R"(^\s*ld\.acquire\.)", "ld.relaxed.")},
      {"counter target one short", replaced(acquire, "ld.acquire.gpu.global.u32 $1, $2; add.s32 $1, $1, 1;")},
      {"counter target one too far", replaced(acquire, "ld.acquire.gpu.global.u32 $1, $2; add.s32 $1, $1, -1;")},
      {"packet torn", replaced(packet, "mov.b64 {%dr0,%dr1}, $2; st.relaxed.gpu.global.u32 [$1+4], %dr1; st.relaxed.gpu.global.u32 [$1], %dr0;")},
      {"packet with a stale tag", replaced(packet, "add.s64 %dd0, $2, -4294967296; st.relaxed.gpu.global.u64 [$1], %dd0;")},
      {"packet stored weakly", replaced(R"(^\s*st\.relaxed\.gpu\.(global\.(v2\.)?u64))", "st.$1")},
      {"packet loaded weakly", replaced(R"(^\s*ld\.relaxed\.gpu\.)", "ld.")},
      {"parity swapped", replaced(wait, "{ .reg .pred p; xor.b32 %dr0, $3, 1; mbarrier.$1 p, [$2], %dr0; selp.u32 $4, 1, 0, p; }")},
      {"wait left out", replaced(wait, "{ mov.u32 $4, 1; }")},
      {"arrival dropped", deleted(R"(^\s*mbarrier\.arrive\.shared\.b64 \S+ \S+;)")},
      {"arrival after copies dropped", deleted(R"(^\s*cp\.async\.mbarrier\.arrive\.noinc\.\S+ \S+;)")},
      {"arrival doubled", replaced(R"(^\s*mbarrier\.arrive\.shared\.b64 (\S+ \S+;))", "mbarrier.arrive.shared.b64 $1 mbarrier.arrive.shared.b64 $1")},
      {"ring stage released early", release_early},
      {"copy 16 bytes short", replaced(bulk, "add.s32 %dr0, $4, -16; cp.async.bulk.$1 [$2], [$3], %dr0, [$5], $6;")},
      {"copy 16 bytes long", replaced(bulk, "add.s32 %dr0, $4, 16; cp.async.bulk.$1 [$2], [$3], %dr0, [$5], $6;")},
      {"copy from 16 bytes on", replaced(bulk, "cp.async.bulk.$1 [$2], [$3+16], $4, [$5], $6;")},
      {"copy to 16 bytes on", replaced(bulk, "cp.async.bulk.$1 [$2+16], [$3], $4, [$5], $6;")},
      {"piece dropped", deleted(piece)},
      {"piece from 16 bytes on", replaced(piece, "cp.async.cg.$1 [$2], [$3+16], 16, $4;")},
      {"piece to 16 bytes on", replaced(piece, "cp.async.cg.$1 [$2+16], [$3], 16, $4;")},
      {"16 bytes fewer expected", replaced(expect, "add.s32 %dr0, $4, -16; mbarrier.arrive.expect_tx.$1 $2, [$3], %dr0;")},
      {"16 bytes more expected", replaced(expect, "add.s32 %dr0, $4, 16; mbarrier.arrive.expect_tx.$1 $2, [$3], %dr0;")},
      {"expectation dropped", deleted(expect)},
      {"initialisation missing", deleted(init)},
      {"initialised for one fewer", replaced(init, "add.s32 %dr0, $2, -1; mbarrier.init.shared.b64 [$1], %dr0;")},
      {"initialised for one more", replaced(init, "add.s32 %dr0, $2, 1; mbarrier.init.shared.b64 [$1], %dr0;")},
  };
  return all;
}

/// Registers for the edits, in the function that holds line `i`.
void declare(Lines& lines, std::size_t i) {
  while (i > 0 && lines[i] != "{") --i;
  lines[i] += " .reg .b32 %dr<4>; .reg .b64 %dd<4>; .reg .pred %dp<1>;";
}

}  // namespace

const std::vector<std::string>& defect_kinds() {
  static const std::vector<std::string> kinds = [] {
    std::vector<std::string> names;
    for (const auto& [name, edit] : edits())
      if (name != unreached) names.push_back(name);
    return names;
  }();
  return kinds;
}

std::vector<Defect> defects_of(const std::string& ptx, const std::string& kind) {
  const auto& all = edits();
  const auto known = std::find_if(all.begin(), all.end(), [&](const auto& each) { return each.first == kind; });
  if (known == all.end()) throw std::invalid_argument("no kind of defect: " + kind);
  const Lines original = split(ptx);
  std::vector<Defect> found;
  Lines lines = original;
  for (std::size_t i = 0; i < lines.size(); ++i) {
    if (!known->second(lines, i)) continue;
    declare(lines, i);
    Defect defect;
    defect.line = static_cast<int>(i) + 1;
    defect.instruction = original[i].substr(std::min(original[i].find_first_not_of(" \t"), original[i].size()));
    for (const std::string& line : lines) defect.ptx += line + "\n";
    found.push_back(std::move(defect));
    lines = original;
  }
  return found;
}

}  // namespace adamk::emulated
