// The launch interface of every generated kernel: one struct passed by value. This file is plain C and is embedded at
// the head of generated sources, so host and device cannot disagree. Pointers are device addresses unless said otherwise.
#ifndef ADAMK_RUNTIME_KERNEL_PARAMS_H
#define ADAMK_RUNTIME_KERNEL_PARAMS_H

typedef struct AdamkKernelParams {
  const void* weights;          // packed matrices (16-byte aligned), read-only
  const void* small_tensors;    // norm gains and biases, weights format
  const void* embedding;        // [vocab, hidden], weights format
  const float* rope;            // [context, head_dim / 2, 2] cos, sin
  void* kv;                     // [layers, kv_heads, 2 (K, V), context, head_dim], weights format
  void* workspace;              // exchange buffers; zeroed once, then kept across launches
  const int* given;             // [given_count] input tokens of the first steps; at least one
  int* tokens;                  // [steps] the argmax of each step
  float* logits;                // [steps, vocab], or null: not written
  unsigned* report;             // [ADAMK_REPORT_WORDS] host-mapped, zero; written once when the watchdog fires
  long long position;           // of the first step; position + steps <= context
  long long watchdog_clocks;    // SM clocks a single wait may take
  unsigned epoch;               // steps decoded with this workspace before this launch
  int given_count;
  int steps;
  int reserved;
} AdamkKernelParams;

// report: [0] nonzero once written (1 tagged, 2 counter or barrier, 3 mbarrier, 4 token), [1] SM, [2] role, [3] stage,
// [4] layer, [5] step, [6] expected tag or target, [7] seen.
#define ADAMK_REPORT_WORDS 8

#endif
