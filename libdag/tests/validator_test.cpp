#include "adamk/dag/validator.h"

#include <gtest/gtest.h>

#include <random>

#include "adamk/dag/space.h"
#include "dag_fixtures.h"

namespace adamk {
namespace {

using fixtures::deploy;

struct Subject {
  Deployment deployment;
  TileDag dag;
  std::mt19937_64 random;

  std::size_t below(std::size_t bound) { return static_cast<std::size_t>(random() % bound); }
  DagStage& stage(std::string_view name) { return dag.stages[static_cast<std::size_t>(dag.find_stage(name))]; }
  /// A random range of the role in a random GEMV stage; its name goes to `where`.
  TaskRange& any_range(WarpRole role, std::string& where) {
    const char* names[] = {"qkv", "output", "gate_up", "down", "head"};
    DagStage& chosen = stage(names[below(5)]);
    where = chosen.name;
    std::vector<TaskRange*> ranges;
    for (TaskRange& range : chosen.ranges)
      if (range.role == role) ranges.push_back(&range);
    return *ranges[below(ranges.size())];
  }
};

/// Subjects of different shapes, path and splits for a seed.
Subject subject(std::uint64_t seed) {
  const Model models[] = {fixtures::tiny_model(), fixtures::ragged_model(), fixtures::llama_1b()};
  Deployment deployment = deploy(models[seed % 3], seed % 2 == 0 ? "l20" : "h200");
  Plan plan = default_plan(deployment).value();
  plan.grid = seed % 3 == 2 ? plan.grid : 4;
  plan.stages[1].kv_splits = 1 + static_cast<int>(seed % 4);
  TileDag dag = make_tile_dag(deployment, plan).value();
  return {std::move(deployment), std::move(dag), std::mt19937_64(seed)};
}

/// Applies `mutate` to many subjects: each must be refuted by `check`, with words that name what was changed.
template <class Mutate>
void expect_refuted(const char* check, Mutate mutate) {
  for (std::uint64_t seed = 0; seed < 12; ++seed) {
    Subject s = subject(seed);
    const std::string words = mutate(s);
    const Certificate certificate = validate(s.dag, s.deployment);
    EXPECT_FALSE(certificate.ok) << "seed " << seed;
    EXPECT_EQ(certificate.failed, check) << "seed " << seed << ": " << certificate.counterexample;
    EXPECT_NE(certificate.counterexample.find(words), std::string::npos)
        << "seed " << seed << ": '" << certificate.counterexample << "' does not name '" << words << "'";
  }
}

TEST(ValidatorTest, AcceptsSampledPlansOfEveryShape) {
  const std::vector<Deployment> deployments = {
      deploy(fixtures::tiny_model(), "l20"),   deploy(fixtures::ragged_model(), "a100"), deploy(fixtures::llama_1b(), "l4"),
      deploy(fixtures::qwen3_1_7b(), "h200"), deploy(fixtures::qwen2_1_5b(), "rtx4090")};
  for (const Deployment& deployment : deployments) {
    const Space space = make_space(deployment).value();
    const std::uint64_t plans = deployment.model.vocab > 1000 ? 3 : 20;   // a large one takes half a second
    for (std::uint64_t i = 0; i < plans; ++i) {
      const Plan plan = sample(space, 11, i);
      const Certificate certificate = validate(make_tile_dag(deployment, plan).value(), deployment);
      ASSERT_TRUE(certificate.ok) << certificate.failed << ": " << certificate.counterexample << "\n"
                                  << plan_to_json(plan).dump();
      EXPECT_EQ(certificate.checks.size(), 9u);
      EXPECT_EQ(certificate.plan_hash, plan.hash());
    }
  }
}

TEST(ValidatorTest, RefutesADroppedTile) {
  expect_refuted("complete", [](Subject& s) {
    std::string where;
    TaskRange& range = s.any_range(WarpRole::storer, where);
    DagStage& stage = s.stage(where);
    if (range.count > 1) {
      --range.count;
    } else {
      std::erase_if(stage.ranges, [&](const TaskRange& r) { return &r == &range; });
    }
    return "is never written by stage " + where;
  });
}

TEST(ValidatorTest, RefutesATileDoneTwice) {
  expect_refuted("complete", [](Subject& s) {
    std::string where;
    TaskRange copy = s.any_range(WarpRole::storer, where);
    copy.first = 1 << 20;   // under another task id
    copy.count = 1;
    s.stage(where).ranges.push_back(copy);
    return std::string("is written twice: by ") + where + " storer task";
  });
}

TEST(ValidatorTest, RefutesATaskIdUsedTwice) {
  expect_refuted("in_bounds", [](Subject& s) {
    std::string where;
    const TaskRange copy = s.any_range(WarpRole::storer, where);
    s.stage(where).ranges.push_back(copy);
    return where + " storer task";
  });
}

TEST(ValidatorTest, RefutesAShiftedOutput) {
  expect_refuted("complete", [](Subject& s) {
    TaskRange* first = nullptr;
    for (TaskRange& range : s.stage("qkv").ranges)
      if (range.role == WarpRole::storer && first == nullptr) first = &range;
    first->writes[0].region.begin += 1;
    return std::string("qkv[0, 1) is never written");
  });
}

TEST(ValidatorTest, RefutesWeightsOfOtherRows) {
  expect_refuted("operands", [](Subject& s) {
    TaskRange& load = s.stage("down").ranges[0];
    const std::int64_t k = s.deployment.model.ffn;
    load.reads[0].region.begin += k;
    load.reads[0].region.end += k;
    return std::string("of down.weight, but its output needs");
  });
}

TEST(ValidatorTest, RefutesAKSliceThatIsTooShort) {
  expect_refuted("operands", [](Subject& s) {
    const char* names[] = {"qkv", "output", "gate_up", "down", "head"};
    DagStage& stage = s.stage(names[s.below(5)]);
    stage.slices[0].end -= 4;
    return "stage " + stage.name + ": the K slice";
  });
}

TEST(ValidatorTest, RefutesAnInputReadInPart) {
  expect_refuted("operands", [](Subject& s) {
    for (TaskRange& range : s.stage("down").ranges) {
      for (Access& read : range.reads)
        if (read.region.tensor == s.dag.find_tensor("ffn")) read.region.end -= 4;
    }
    return std::string("of ffn, but its output needs ffn[0, ");
  });
}

TEST(ValidatorTest, RefutesAReadPastTheEnd) {
  expect_refuted("in_bounds", [](Subject& s) {
    std::string where;
    TaskRange& range = s.any_range(WarpRole::loader, where);
    range.reads[0].region.begin += s.dag.tensors[static_cast<std::size_t>(range.reads[0].region.tensor)].elements;
    range.reads[0].region.end = range.reads[0].region.begin + 16;
    return where + " loader task";
  });
}

TEST(ValidatorTest, RefutesANegativeOffset) {
  expect_refuted("in_bounds", [](Subject& s) {
    std::string where;
    TaskRange& range = s.any_range(WarpRole::storer, where);
    range.writes[0].region.begin = -4;
    return where + " storer task";
  });
}

TEST(ValidatorTest, RefutesACycle) {
  expect_refuted("edges", [](Subject& s) {
    for (EdgeSet& edge : s.dag.edges) {
      // The down projection's rows reach the next layer; in the same layer they would be read before they exist.
      if (edge.tensor == s.dag.find_tensor("hidden") && edge.hazard == Hazard::raw) edge.layer_distance = 0;
    }
    return std::string("qkv consumer");
  });
}

TEST(ValidatorTest, RefutesAMissingEdge) {
  expect_refuted("edges", [](Subject& s) {
    const int tensor = s.dag.find_tensor("ffn");
    std::erase_if(s.dag.edges, [&](const EdgeSet& e) { return e.tensor == tensor && e.hazard == Hazard::raw; });
    return std::string("down consumer reads ffn, which gate_up storer writes");
  });
}

TEST(ValidatorTest, RefutesAnExchangeThatStaysInTheSm) {
  expect_refuted("edges", [](Subject& s) {
    for (EdgeSet& edge : s.dag.edges)
      if (edge.tensor == s.dag.find_tensor("hidden_mid") && edge.hazard == Hazard::raw) edge.via = Via::local;
    return std::string("wrote of hidden_mid on SM");
  });
}

TEST(ValidatorTest, RefutesATileMovedAwayFromItsResidual) {
  expect_refuted("edges", [](Subject& s) {
    // All roles of the first SM's down tiles move together, so that only the residual is left behind.
    for (TaskRange& range : s.stage("down").ranges)
      if (range.sm == 0) range.sm = 1;
    return std::string("of residual on SM");
  });
}

TEST(ValidatorTest, RefutesMoreBlocksThanSms) {
  expect_refuted("fits", [](Subject& s) {
    s.deployment.target.sms = s.dag.resources.grid - 1;
    return fmt::format("has {} SMs", s.dag.resources.grid - 1);
  });
}

TEST(ValidatorTest, RefutesTooMuchSharedMemory) {
  expect_refuted("fits", [](Subject& s) {
    s.dag.resources.smem_bytes = s.deployment.target.smem_per_block + 1;
    return fmt::format("shared memory: {} bytes, but a block on {} may have {}", s.deployment.target.smem_per_block + 1,
                       s.deployment.target.name, s.deployment.target.smem_per_block);
  });
}

TEST(ValidatorTest, RefutesTooManyThreadsAndTooFewRegisters) {
  expect_refuted("fits", [](Subject& s) {
    s.dag.resources.threads = s.deployment.target.max_threads_per_block + 32;
    return std::string("threads: ");
  });
  expect_refuted("fits", [](Subject& s) {
    s.deployment.target.registers_per_sm = 32 * s.dag.resources.threads;
    return std::string("registers: ");
  });
}

TEST(ValidatorTest, RefutesAWindowWiderThanTheRing) {
  expect_refuted("fits", [](Subject& s) {
    s.dag.resources.window = s.dag.resources.ring_stages + 1;
    return std::string("no more in flight than there are");
  });
}

TEST(ValidatorTest, RefutesTheHeadsOfAnotherModel) {
  expect_refuted("structure", [](Subject& s) {
    s.deployment.model.kv_heads /= 2;
    return std::string("but the model needs");
  });
}

TEST(ValidatorTest, RefutesAnItemThatAttendsToAnotherHead) {
  expect_refuted("operands", [](Subject& s) {
    for (TaskRange& range : s.stage("attention").ranges) {
      if (range.role != WarpRole::consumer || range.first != 0) continue;
      range.reads[1].region.begin += s.deployment.model.head_dim;
      range.reads[1].region.end += s.deployment.model.head_dim;
    }
    return std::string("attention consumer task 0");
  });
}

TEST(ValidatorTest, RefutesASplitWhosePositionsNobodyReads) {
  expect_refuted("operands", [](Subject& s) {
    for (TaskRange& range : s.stage("attention").ranges) {
      if (range.role != WarpRole::consumer || range.first != 0) continue;
      range.reads[3].region.end -= s.deployment.model.head_dim;
    }
    return std::string("of kv_cache, but its output needs kv_cache[0, ");
  });
}

TEST(ValidatorTest, RefutesAWrongLayerCountAndAMissingStage) {
  expect_refuted("structure", [](Subject& s) {
    --s.dag.layers;
    return fmt::format("the model has {} layers", s.dag.layers + 1);
  });
  expect_refuted("structure", [](Subject& s) {
    s.dag.stages.pop_back();
    return std::string("stages, but a step has embedding, qkv");
  });
}

TEST(ValidatorTest, RefutesAnArgmaxThatSkipsRows) {
  expect_refuted("operands", [](Subject& s) {
    for (TaskRange& range : s.stage("argmax").ranges)
      if (range.role == WarpRole::storer && range.sm == 0) range.reads[0].region.end -= 1;
    return std::string("the argmax looks at logits");
  });
}

TEST(ValidatorTest, RefutesTokensOfAnotherStep) {
  expect_refuted("edges", [](Subject& s) {
    for (EdgeSet& edge : s.dag.edges)
      if (edge.tensor == s.dag.find_tensor("argmax") && edge.hazard == Hazard::raw) edge.step_distance = 2;
    return std::string("argmax");
  });
}

}  // namespace
}  // namespace adamk
