/* c_example TARGET DRAFT PROMPT: writes a text piece by piece, then two samples of JSON, in C. */
#include <coppice_c.h>
#include <stdio.h>

/* One line of what went wrong. */
static int report(void) {
  fprintf(stderr, "c_example: %s\n", coppice_error_message());
  return 1;
}

static int print_piece(void* user, const coppice_piece* piece) {
  fwrite(piece->text, 1, piece->text_bytes, (FILE*)user);
  return fflush((FILE*)user); /* anything but 0 ends the text */
}

static int write_text(coppice_engine* engine, const char* prompt) {
  coppice_generate_options options;
  coppice_generate_options_init(&options, sizeof options);
  options.max_new_tokens = 32;
  options.temperature = 0.8;
  options.seed = 7;
  coppice_request request;
  coppice_request_init(&request, sizeof request);
  request.prompt = prompt;
  request.options = &options;
  request.on_piece = print_piece;
  request.user = stdout;
  coppice_outcome* outcome;
  if (coppice_generate(engine, &request, &outcome) != COPPICE_OK) return report();
  const coppice_generation* text = coppice_outcome_generation(outcome, 0);
  printf("\n-- %zu tokens, %.2f per target pass by %s\n", text->token_count,
         text->statistics->accepted_length, text->used->policy);
  coppice_outcome_free(outcome);
  return 0;
}

static int write_json(coppice_engine* engine, const char* prompt) {
  coppice_constraint* constraint;
  if (coppice_constraint_json_schema(engine, "{\"enum\": [\"sea\", \"land\"]}", &constraint) !=
      COPPICE_OK) {
    return report();
  }
  coppice_generate_options options;
  coppice_generate_options_init(&options, sizeof options);
  options.temperature = 1.0;
  options.constraint = constraint;
  coppice_request request;
  coppice_request_init(&request, sizeof request);
  request.prompt = prompt;
  request.options = &options;
  request.n = 2;
  coppice_outcome* outcome;
  const coppice_status status = coppice_generate(engine, &request, &outcome);
  coppice_constraint_free(constraint);
  if (status != COPPICE_OK) return report();
  for (size_t i = 0; i < coppice_outcome_count(outcome); ++i) {
    printf("sample %zu: %s\n", i, coppice_outcome_generation(outcome, i)->text);
  }
  coppice_outcome_free(outcome);
  return 0;
}

int main(int argc, char** argv) {
  if (argc != 4) {
    fprintf(stderr, "usage: c_example TARGET DRAFT PROMPT\n");
    return 2;
  }
  coppice_engine_options options;
  coppice_engine_options_init(&options, sizeof options);
  options.target = argv[1];
  options.draft = argv[2];
  coppice_engine* engine;
  if (coppice_engine_load(&options, &engine) != COPPICE_OK) return report();
  int code = write_text(engine, argv[3]);
  if (code == 0) code = write_json(engine, argv[3]);
  coppice_engine_free(engine);
  return code;
}
