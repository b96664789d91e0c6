#include "adamk/ptx/listing.h"

#include "flow.h"
#include "regions.h"

namespace adamk {

std::map<int, PtxLine> list_lines(const PtxModule& module) {
  std::map<int, PtxLine> lines;
  for (const PtxBody& body : module.functions) {
    if (body.code.empty()) continue;
    const ptx::Regions regions = ptx::find_regions(body, ptx::make_flow(body));
    for (std::size_t i = 0; i < body.code.size(); ++i) {
      const ptx::Regions::Name& name = regions.names[static_cast<std::size_t>(regions.of[i])];
      lines[body.code[i].line] = {body.code[i].opcode, body.entry ? name.role : body.name, name.stage};
    }
  }
  return lines;
}

}  // namespace adamk
