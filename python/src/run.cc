#include "run.h"

#include <utility>

namespace coppice_python {
namespace {

/// How long Ctrl-C may wait to be heard.
constexpr std::int32_t milliseconds_between_signals = 50;

unsigned long main_thread = 0;

}  // namespace

void note_main_thread() {
  const nb::object thread = nb::module_::import_("threading").attr("main_thread")();
  main_thread = nb::cast<unsigned long>(thread.attr("ident"));
}

Run::Run(EngineHandle engine, Requests requests, bool answered) : engine_(std::move(engine)) {
  if (answered) {
    batch_ = std::make_shared<AnsweredBatch>(std::move(requests));
  } else {
    batch_ = std::make_shared<SubmittedBatch>(std::move(requests));
  }
  batch_->start(engine_->get());
  engine_->add(batch_);
}

Run::~Run() {
  if (batch_->uses_sequences()) {
    close();
  } else {
    stop();
    batch_->events().close();
  }
  batch_.reset();
  engine_->sweep();
}

nb::object Run::next() {
  const bool hears_signals = PyThread_get_thread_ident() == main_thread;
  for (;;) {
    Event event;
    Events::Found found;
    {
      const nb::gil_scoped_release unlocked;
      found = batch_->events().take(event, hears_signals ? milliseconds_between_signals : -1);
    }
    if (found != Events::Found::nothing) return read(found, event);
    if (PyErr_CheckSignals() != 0) throw nb::python_error();
  }
}

nb::object Run::poll() {
  Event event;
  const Events::Found found = batch_->events().take(event, 0);
  return found == Events::Found::nothing ? nb::bool_(false) : read(found, event);
}

nb::object Run::read(Events::Found found, const Event& event) {
  if (found == Events::Found::end) {
    if (!batch_->events().closed()) batch_->check();
    return nb::none();
  }
  if (event.is_end) return nb::make_tuple(event.request, batch_->outcome_of(event.request));
  return nb::make_tuple(event.request, event.sample, nb::str(event.text.data(), event.text.size()),
                        list_of(event.tokens.data(), event.tokens.size()), list_of(event.logprobs));
}

bool Run::watch(std::shared_ptr<Waker> waker, std::uint64_t key) {
  return batch_->events().watch(std::move(waker), key);
}

void Run::stop() {
  const nb::gil_scoped_release unlocked;
  batch_->stop();
}

void Run::close() {
  const nb::gil_scoped_release unlocked;
  batch_->stop();
  batch_->events().close();
  batch_->wait();
}

}  // namespace coppice_python
