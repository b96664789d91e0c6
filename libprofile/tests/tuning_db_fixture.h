// A deployment, evaluations and a scratch folder for the tests of the tuning database.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "adamk/profile/tuning_db.h"
#include "adamk/search/search.h"
#include "adamk/search/simulated.h"

namespace adamk::testing_db {

inline Deployment small_deployment() {
  Deployment d;
  Model& model = d.model;
  model.family = "llama";
  model.layers = 2;
  model.hidden = 256;
  model.heads = 4;
  model.kv_heads = 2;
  model.head_dim = 64;
  model.ffn = 512;
  model.vocab = 1024;
  model.max_positions = 512;
  model.norm_eps = 1e-5;
  Target& target = d.target;
  target.name = "l20";
  target.product = "NVIDIA L20";
  target.sm = 89;
  target.sms = 92;
  target.smem_per_block = 101376;
  target.smem_per_sm = 102400;
  target.smem_reserved = 1024;
  target.l2_bytes = 96 << 20;
  target.memory_bytes = std::int64_t{48} << 30;
  target.read_gbps = 780;
  target.hop_us = 1.2;
  target.clock_mhz = 2520;
  d.workload.context = 128;
  return d;
}

inline DeviceIdentity device(std::string name = "NVIDIA L20", int sm = 89, std::string driver = "13.0") {
  DeviceIdentity out;
  out.name = std::move(name);
  out.sm = sm;
  out.sms = 92;
  out.driver = std::move(driver);
  out.toolkit = "13.0";
  out.read_gbps = 780;
  return out;
}

inline RunKey key(DeviceIdentity on = device(), Method method = Method::cupti) {
  return {std::move(on), method, "beam", 1, "20", "random 1", "test"};
}

/// Plan number i: the default plan with ever fewer blocks.
inline Plan plan(int i) {
  Plan out = default_plan(small_deployment()).value();
  out.grid -= i;
  return out;
}

inline Evaluation measured(double us) {
  Evaluation out;
  out.method = Method::cupti;
  out.samples_us = {us, us + 2, us + 1};   // median us + 1
  out.bytes_per_token = 2e6;
  out.ceiling_gbps = 800;
  out.verdict = {true, "certificate", 3, 64, 1, 0.01, 0.02};
  out.resources = {"source", "cubin", "sm_89", 128, 0, 608, 90000, 40000, 1.5};
  out.conditions = {2500, 61, 2};
  out.counters = {{"dram__bytes_read.sum", 2.1e6}};
  return out;
}

inline Evaluation failed(Status status, std::string message) {
  Evaluation out;
  out.method = Method::cupti;
  out.status = status;
  out.message = std::move(message);
  return out;
}

class TuningDbTest : public testing::Test {
 protected:
  void SetUp() override {
    const auto* info = testing::UnitTest::GetInstance()->current_test_info();
    folder = std::filesystem::temp_directory_path() /
             fmt::format("adamk-{}-{}-{}", info->test_suite_name(), info->name(), getpid());
    std::filesystem::create_directories(folder);
    path = folder / "tuning.db";
  }
  void TearDown() override { std::filesystem::remove_all(folder); }

  std::unique_ptr<TuningDb> open(TuningDb::Mode mode = TuningDb::Mode::create) {
    auto db = TuningDb::open(path, mode);
    EXPECT_TRUE(db.has_value()) << db.error().message;
    return db ? std::move(*db) : nullptr;
  }
  std::string bytes() const {
    std::ifstream in(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }
  void write(std::string_view text) const { std::ofstream(path, std::ios::binary) << text; }

  std::filesystem::path folder, path;
};

}  // namespace adamk::testing_db
