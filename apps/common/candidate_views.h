// Plans and records of the tuning database as people and programs read them.
#pragma once

#include <string>
#include <vector>

#include "adamk/dag/plan.h"
#include "adamk/profile/tuning_db.h"
#include "common/table.h"

namespace adamk::views {

/// "tagged, tiles of 16 x 64, 4 KV splits, 16 warps, ring 6, window 2, 132 blocks": where stages differ, their values in
/// order, "tagged/counter".
std::string plan_text(const Plan& plan);

/// One row per record; why a plan failed stands in a column of its own, left out when none did.
Table candidates_table(const std::vector<CandidateRow>& rows);

/// One record in full, a line each. Not for one without a time.
std::string candidate_text(const CandidateRow& row);

/// The columns' figures and the plan itself; null where unknown.
Json candidate_to_json(const CandidateRow& row);
Json candidates_to_json(const std::vector<CandidateRow>& rows);

/// "12 ok, 3 spills".
std::string counts_text(const std::map<std::string, int>& counts);

}  // namespace adamk::views
