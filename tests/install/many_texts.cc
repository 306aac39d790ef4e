// many_texts TARGET DRAFT PROMPT: writes two texts and three samples of a third side by side, in
// passes that all of them share.
#include <coppice.h>

#include <cstddef>
#include <exception>
#include <iostream>
#include <string>
#include <vector>

namespace {

std::string message_of(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const std::exception& known) {
    return known.what();
  }
}

}  // namespace

int main(int argc, char** argv) try {
  if (argc != 4) {
    std::cerr << "usage: many_texts TARGET DRAFT PROMPT\n";
    return 2;
  }
  coppice::EngineOptions options;
  options.target = argv[1];
  options.draft = argv[2];
  options.max_sequences = 8;  // at most eight at a time; the rest wait
  auto engine = coppice::Engine::load(options);

  std::vector<coppice::Request> requests(3);
  for (coppice::Request& request : requests) {
    request.prompt = argv[3];
    request.options.max_new_tokens = 32;
  }
  requests[1].prompt += " there";
  requests[2].options.sampling.temperature = 0.8;
  requests[2].n = 3;  // with the streams 0, 1 and 2

  const auto outcomes = engine.generate(requests, [](std::size_t index, coppice::Outcome&) {
    std::cerr << "request " << index << " has ended\n";  // in whatever order
  });
  for (const coppice::Outcome& outcome : outcomes) {
    if (outcome.error) {  // which spares the others
      std::cerr << "many_texts: " << message_of(outcome.error) << "\n";
      continue;
    }
    for (const coppice::Generation& text : outcome.samples) {
      std::cout << text.text << "\n-- " << text.statistics.batch_mean << " texts in a pass\n";
    }
  }
  return 0;
} catch (const coppice::Error& error) {
  std::cerr << "many_texts: " << error.what() << "\n";
  return 1;
}
