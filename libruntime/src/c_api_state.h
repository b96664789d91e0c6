// What stands behind the handles of adamk.h.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "adamk.h"
#include "adamk/runtime/artifact.h"
#include "adamk/runtime/decoder.h"
#include "adamk/runtime/sequence.h"

namespace adamk::c_api {

using OpenDevice = std::function<Result<std::unique_ptr<Device>>(int index, void* stream)>;

/// Weights on one device, with the device that holds them alive.
struct SharedWeights {
  std::unique_ptr<Device> device;
  std::shared_ptr<Decoder::DeviceWeights> weights;  // released before the device
};

struct ModelState {
  ModelState(Artifact opened, OpenDevice open) : artifact(std::move(opened)), open_device(std::move(open)) {}

  Artifact artifact;
  OpenDevice open_device;             // open_cuda_device but in tests
  std::mutex mutex;                   // of what follows
  std::vector<SharedWeights> uploaded;
};

/// Members are destroyed from the last to the first: the decoder before the device it runs on.
struct SessionState {
  std::shared_ptr<ModelState> model;
  std::unique_ptr<Device> device;
  std::optional<Decoder> decoder;
  std::optional<Sequence> sequence;
  bool keep_logits = false;
  std::vector<int> tokens;
  std::vector<float> logits;
  std::string error;
};

}  // namespace adamk::c_api

struct adamk_model {
  std::shared_ptr<adamk::c_api::ModelState> state;
};

struct adamk_session {
  std::unique_ptr<adamk::c_api::SessionState> state;
};
