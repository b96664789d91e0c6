/* adamk: decode with an exported megakernel, from C.
 *
 *   adamk_model*   an opened artifact. Needs no GPU. May be used by several threads at once.
 *   adamk_session* one sequence on one GPU. One thread at a time; different sessions are independent.
 *
 * Ownership: what adamk_open and adamk_session_create return is the caller's, and is freed with adamk_close and
 * adamk_session_destroy, in any order. Sessions of one model on one GPU share one copy of the weights, uploaded by the
 * first. Strings returned belong to the model or session they came from.
 *
 * Errors: every function that can fail returns an adamk_status. The text is written to the caller's `error` buffer
 * where a function takes one (always terminated, cut when too long; may be NULL with size 0), and kept by the session
 * otherwise: adamk_session_error. Nothing is printed; no C++ exception leaves the library.
 *
 * Link with the C++ runtime (link with a C++ compiler, or -lstdc++). libcuda.so.1 is opened when a session is created.
 */
#ifndef ADAMK_H
#define ADAMK_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The values are the exit statuses of the adamk commands (docs/exit-codes.md). */
typedef enum adamk_status {
  ADAMK_OK = 0,
  ADAMK_CHECK_FAILED = 1,  /* the answer is no */
  ADAMK_BAD_INPUT = 2,     /* an argument, or a file that is not what it should be */
  ADAMK_MACHINE = 3,       /* no GPU, no driver, no memory, a file that cannot be read, or a kernel that failed */
  ADAMK_INTERRUPTED = 130
} adamk_status;

typedef struct adamk_model adamk_model;
typedef struct adamk_session adamk_session;

/* Options start with their own size (sizeof, set by the caller), so that later versions can append members. Zero every
 * other member that is not needed. NULL stands for all zero. */
typedef struct adamk_open_options {
  size_t size;
  int skip_weight_hashes;  /* nonzero: check the large files by size only; hashing gigabytes takes seconds */
} adamk_open_options;

/* Opens an artifact folder and checks its files. On failure *model is NULL. */
adamk_status adamk_open(const char* path, const adamk_open_options* options, adamk_model** model, char* error,
                        size_t error_size);

/* Sessions stay valid. NULL is allowed. */
void adamk_close(adamk_model* model);

typedef struct adamk_model_info {
  size_t size;               /* set by the caller; members beyond it are left alone */
  int layers, hidden, heads, kv_heads, head_dim, ffn, vocab;
  int max_steps;             /* tokens one launch decodes at most; adamk_step takes more and launches again */
  int64_t context;           /* positions of the KV cache */
  int64_t kv_bytes;          /* [layers, kv_heads, 2 (K, V), context, head_dim], two bytes each */
  int64_t packed_bytes, small_bytes, embedding_bytes;
  const char* format;        /* "bf16" or "fp16": weights, activations and KV */
  const char* arch;          /* what the kernel was compiled for: "sm_90a", "compute_89" */
  const char* plan;          /* hash of the plan */
  const char* deployment;    /* key of the deployment */
} adamk_model_info;

adamk_status adamk_info(const adamk_model* model, adamk_model_info* info);

typedef struct adamk_session_options {
  size_t size;
  int device;                /* index of the GPU; not looked at when `stream` is given */
  void* stream;              /* CUstream of the caller, which must outlive the session; NULL: the session makes its own.
                                The work is queued there and waited for before a call returns. */
  uint64_t kv;               /* CUdeviceptr of kv_bytes kept by the caller, used as it is; 0: allocated and zeroed */
  uint64_t packed, small_tensors, embedding;  /* CUdeviceptr of weights already on the GPU, all three or none: the bytes
                                of weights.packed, small.packed and embedding.bin, kept by the caller */
  int keep_logits;           /* nonzero: adamk_step also stores logits, for adamk_read_logits */
  double watchdog_ms;        /* the longest a wait inside the kernel may take; 0: 2000 */
} adamk_session_options;

/* Opens the GPU, checks that the kernel runs on it with its whole grid resident, and uploads the weights unless a session
 * of this model already did. On failure *session is NULL. */
adamk_status adamk_session_create(adamk_model* model, const adamk_session_options* options, adamk_session** session,
                                  char* error, size_t error_size);

/* NULL is allowed. */
void adamk_session_destroy(adamk_session* session);

/* Text of the last failed call on this session; "" when none failed. Valid until the next call on the session. */
const char* adamk_session_error(const adamk_session* session);

/* Decodes `steps` tokens: the first `given_count` steps are fed `given` (a prompt), each later one the token chosen
 * before. With given_count 0 it goes on from the last choice. Waits. The first call needs at least one given token.
 * After ADAMK_MACHINE the session can only be destroyed. */
adamk_status adamk_step(adamk_session* session, const int* given, size_t given_count, int64_t steps);

/* The greedy choice after each step of the last adamk_step, in order. `count` must be its steps at most; the first `count`
 * are written. */
adamk_status adamk_read_tokens(adamk_session* session, int* tokens, size_t count);

/* The logits of step `step` (from 0) of the last adamk_step: `count` must be the vocabulary's size. Needs keep_logits. */
adamk_status adamk_read_logits(adamk_session* session, int64_t step, float* logits, size_t count);

/* Where the next step goes; -1 for NULL. */
int64_t adamk_position(const adamk_session* session);

/* Goes on at `position`, over KV already there; the next adamk_step needs a given token. */
adamk_status adamk_set_position(adamk_session* session, int64_t position);

/* Starts a new sequence: adamk_set_position(session, 0), and the results of the last step are forgotten. */
adamk_status adamk_reset(adamk_session* session);

#ifdef __cplusplus
}
#endif

#endif
