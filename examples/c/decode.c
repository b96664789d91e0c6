/* decode ARTIFACT PROMPT [STEPS]: greedy text from a model whose tokens are bytes, through adamk.h. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "adamk.h"

static int report(const char* what, adamk_status status, const char* text) {
  fprintf(stderr, "decode: error: %s: %s\n", what, text);
  return (int)status;
}

/* Feeds the prompt, prints `steps` tokens after it. */
static adamk_status decode(adamk_session* session, const char* prompt, int steps) {
  size_t length = strlen(prompt), i;
  size_t total = length + (size_t)steps - 1; /* the choice after the last prompt token is the first of the answer */
  int* given = malloc(length * sizeof *given);
  int* tokens = malloc(total * sizeof *tokens);
  adamk_status status = ADAMK_MACHINE;
  if (given != NULL && tokens != NULL) {
    for (i = 0; i < length; ++i) given[i] = (unsigned char)prompt[i];
    status = adamk_step(session, given, length, (int64_t)total);
    if (status == ADAMK_OK) status = adamk_read_tokens(session, tokens, total);
    if (status == ADAMK_OK) {
      fputs(prompt, stdout);
      for (i = length - 1; i < total; ++i) putchar(tokens[i]);
      putchar('\n');
    }
  }
  free(given);
  free(tokens);
  return status;
}

int main(int argc, char** argv) {
  char text[1024];
  adamk_model* model = NULL;
  adamk_session* session = NULL;
  adamk_model_info info;
  adamk_status status;
  int steps = argc > 3 ? atoi(argv[3]) : 64;

  if (argc < 3 || argv[2][0] == '\0' || steps < 1) {
    fprintf(stderr, "usage: decode ARTIFACT PROMPT [STEPS]\n");
    return ADAMK_BAD_INPUT;
  }
  status = adamk_open(argv[1], NULL, &model, text, sizeof text);
  if (status != ADAMK_OK) return report(argv[1], status, text);

  memset(&info, 0, sizeof info);
  info.size = sizeof info;
  adamk_info(model, &info);
  fprintf(stderr, "%d layers, hidden %d, vocabulary %d, context %ld, %s, kernel for %s\n", info.layers, info.hidden,
          info.vocab, (long)info.context, info.format, info.arch);
  if (info.vocab != 256) {
    adamk_close(model);
    return report(argv[1], ADAMK_BAD_INPUT, "its tokens are not bytes; this example has no tokenizer");
  }

  status = adamk_session_create(model, NULL, &session, text, sizeof text);
  adamk_close(model); /* the session keeps what it needs */
  if (status != ADAMK_OK) return report("session", status, text);

  status = decode(session, argv[2], steps);
  if (status != ADAMK_OK) report("decode", status, adamk_session_error(session));
  adamk_session_destroy(session);
  return (int)status;
}
