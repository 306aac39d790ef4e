// A request's samples, opened one by one: for generate() of many requests and for submit().
#pragma once

#include <cstdint>
#include <memory>

#include "coppice.h"
#include "engine/open_sequence.h"

namespace coppice {

class Call;

/// How many sequences a caller has open at most.
std::size_t most_open(const Engine::Impl& engine);

/// Throws Error(usage) for a number of samples out of range.
void check_samples(const Request& request);
/// Throws Error(usage) for a sequence that cannot go on here, and for two prompts.
void check_request(const Engine::Impl& engine, const Request& request);
/// An outcome of which no sample has begun.
Outcome outcome_before(const Request& request);
/// What its samples are written to: of its own sequence, which exists, or a new one each time.
std::shared_ptr<Sequence::Impl> sequence_for(Engine::Impl& engine, const Request& request);
/// Throws as Sequence::generate() does. The request outlives what is returned.
std::unique_ptr<OpenSequence> open_sample(std::shared_ptr<Sequence::Impl> sequence,
                                          const Request& request, std::int32_t sample,
                                          const std::stop_token& stop);
/// Adds its run to the call. False: it has ended at once.
bool begin_run(Call& call, OpenSequence& open);
/// Records the exception being handled as the request's error, if it is the first.
void note_error(Outcome& outcome);

}  // namespace coppice
