#include "models/remote_ranks.h"

#include <algorithm>
#include <list>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "base/error.h"
#include "base/secret.h"
#include "kernels/rank_failure.h"
#include "models/graph_model.h"
#include "models/rank_watch.h"

namespace coppice {
namespace {

using Json = nlohmann::json;
using Kind = RankLink::Kind;

/// Time that a connection has for its hello.
constexpr std::chrono::seconds hello_patience(2);
/// Connections that may take it at once; the oldest are closed for further ones.
constexpr std::size_t most_newcomers = 64;
/// Time between looks at those that have joined.
constexpr std::chrono::milliseconds look_between(100);

/// How much is over of the time from `since` to `deadline`.
double share_over(Deadline since, Deadline deadline) {
  const std::chrono::duration<double> over = std::chrono::steady_clock::now() - since;
  return std::clamp(over / std::chrono::duration<double>(deadline - since), 0.0, 1.0);
}

// Calls read(json); what a message lacks is the sender's fault.
template <typename Read>
auto from_message(const RankLink::Message& message, const std::string& sender, const Read& read) {
  try {
    return read(Json::parse(text_of(message.bytes)));
  } catch (const Json::exception&) {
    throw_failure(cat(rank_subject, sender, " sent a message that cannot be read"));
  }
}

Json json_of(const ModelOptions& of) {
  return {{"max_rows", of.max_rows},
          {"max_logit_rows", of.max_logit_rows},
          {"max_positions", of.max_positions},
          {"max_kv_tokens", of.max_kv_tokens},
          {"check_finite", of.check_finite},
          {"rounding", of.rounding ? static_cast<int>(*of.rounding) : -1},
          {"resident_layers", of.resident_layers},
          {"stream_places", of.stream_places},
          {"streams_from_file", !of.stream_folder.empty()}};
}

ModelOptions options_in(const Json& json) {
  ModelOptions options;
  json.at("max_rows").get_to(options.max_rows);
  json.at("max_logit_rows").get_to(options.max_logit_rows);
  json.at("max_positions").get_to(options.max_positions);
  json.at("max_kv_tokens").get_to(options.max_kv_tokens);
  json.at("check_finite").get_to(options.check_finite);
  const int rounding = json.at("rounding").get<int>();
  if (rounding >= 0) options.rounding = static_cast<WeightFormat>(rounding);
  json.at("resident_layers").get_to(options.resident_layers);
  json.at("stream_places").get_to(options.stream_places);
  if (json.at("streams_from_file").get<bool>()) options.stream_folder = ".";
  return options;
}

Json json_of(const KvLayout& of) {
  return {of.layers, of.kv_heads, of.head_dim, of.page_size, of.pages};
}

KvLayout layout_in(const Json& json) {
  KvLayout layout;
  std::int32_t* const fields[] = {&layout.layers, &layout.kv_heads, &layout.head_dim,
                                  &layout.page_size, &layout.pages};
  for (std::size_t i = 0; i < std::size(fields); ++i) json.at(i).get_to(*fields[i]);
  return layout;
}

/// Group ids are bytes.
Json json_of_bytes(const std::string& bytes) {
  return std::vector<unsigned char>(bytes.begin(), bytes.end());
}

std::string bytes_in(const Json& json) {
  const auto bytes = json.get<std::vector<unsigned char>>();
  return {bytes.begin(), bytes.end()};
}

/// Stands for the epilogue that rank 0 queues.
class ElsewhereEpilogue final : public PassEpilogue {
 public:
  explicit ElsewhereEpilogue(std::uint64_t id) : PassEpilogue(id) {}
  void queue(float*, std::int32_t) override {}
};

}  // namespace

// --- rank 0 -------------------------------------------------------------------------------------

RemoteRanks::RemoteRanks(TcpListener& listener, int ranks, const RankClaims& claims,
                         const RankDevice& device, std::chrono::milliseconds patience,
                         const Waiting& waiting)
    : patience_(patience) {
  await(listener, ranks, claims, device, waiting);
  for (const auto& link : links_) {
    memory_.push_back(from_message(link->receive(Kind::ready), link->other(), [](const Json& json) {
      return RankMemory{{json.at("total"), json.at("free"), json.at("budget")}, json.at("host")};
    }));
  }
}

struct RemoteRanks::Newcomer {
  TcpSocket socket;
  Deadline deadline = deadline_in(hello_patience);
  std::string come;  ///< of its hello
};

void RemoteRanks::await(TcpListener& listener, int ranks, const RankClaims& claims,
                        const RankDevice& device, const Waiting& waiting) {
  const Deadline deadline = deadline_in(patience_);
  Deadline since = std::chrono::steady_clock::now();
  std::list<Newcomer> newcomers;
  while (this->ranks() < ranks) {
    const Deadline now = std::chrono::steady_clock::now();
    if (now >= deadline) {
      throw_failure(cat(rank_subject, this->ranks(), " of ", ranks, " ranks came within ",
                        seconds_of(patience_), " s",
                        last_stranger_.empty()
                            ? ""
                            : cat(" (and a connection that was refused: ", last_stranger_, ")"),
                        "; start coppice rank for each of the others"));
    }
    const int here = this->ranks();
    if (waiting) waiting(ranks - here, share_over(since, deadline));
    std::vector<const TcpSocket*> sockets;
    for (const Newcomer& newcomer : newcomers) sockets.push_back(&newcomer.socket);
    listener.wait(sockets, std::min(deadline, now + look_between));
    // One that has joined may be gone before all have.
    for (const auto& link : links_) link->require_sound();
    while (std::optional<TcpSocket> socket = listener.accept(now)) {
      newcomers.emplace_back(std::move(*socket));
      if (newcomers.size() > most_newcomers) newcomers.pop_front();
    }
    newcomers.remove_if([&](Newcomer& newcomer) {
      return this->ranks() < ranks && listen_to(newcomer, ranks, claims, device);
    });
    if (this->ranks() > here) since = now;
  }
}

// Returns true once the newcomer has been admitted or refused.
bool RemoteRanks::listen_to(Newcomer& newcomer, int ranks, const RankClaims& claims,
                            const RankDevice& device) {
  std::optional<std::string> hello;
  try {
    hello = RankLink::take_hello(newcomer.socket, newcomer.come);
  } catch (const Error& error) {
    last_stranger_ = error.what();
    return true;
  }
  if (hello) {
    admit(newcomer.socket, *hello, ranks, claims, device);
    return true;
  }
  if (std::chrono::steady_clock::now() < newcomer.deadline) return false;
  last_stranger_ = "it says nothing";
  return true;
}

void RemoteRanks::admit(TcpSocket& socket, const std::string& text, int ranks,
                        const RankClaims& claims, const RankDevice& device) {
  const Deadline deadline = deadline_in(hello_patience);
  std::string why;
  RankClaims of_other;
  std::chrono::milliseconds others_patience = patience_;
  try {
    const Json hello = Json::parse(text);
    hello.at("build").get_to(of_other.build);
    hello.at("model").get_to(of_other.model);
    hello.at("key").get_to(of_other.key);
    // Another build may say none; it is refused below.
    others_patience = std::chrono::milliseconds(
        std::clamp<std::int64_t>(hello.value("patience", std::int64_t{1000}), 1, 1'000'000'000));
  } catch (const Json::exception&) {
    last_stranger_ = "its hello cannot be read";
    return;
  }
  const int rank = this->ranks();
  const bool has_key = is_secret(of_other.key, claims.key);
  if (!has_key) {
    why = "rank 0 has another key; give both the same one (rank-key)";
  } else if (of_other.build != claims.build) {
    why = cat(name_of_rank(rank, ranks), " is another build (", printable(of_other.build),
              "), rank 0 is ", claims.build, "; use the same program for all");
  } else if (of_other.model != claims.model) {
    why = cat(name_of_rank(rank, ranks), " has another model (fingerprint ",
              printable(of_other.model), "), rank 0 has ", claims.model,
              "; give all of them the same files");
  }
  const bool is_admitted = why.empty();
  try {
    if (is_admitted) {
      RankLink::send(socket, Kind::welcome,
                     Json{{"rank", rank},
                          {"ranks", ranks},
                          {"cuda", device.cuda},
                          {"compute", static_cast<int>(device.compute)},
                          {"integer_products", device.integer_products},
                          {"kv", static_cast<int>(device.kv)},
                          {"patience", patience_.count()}}
                         .dump(),
                     deadline);
    } else {
      RankLink::send(socket, Kind::failed, why, deadline);
    }
  } catch (const Error& error) {
    last_stranger_ = error.what();
    return;
  }
  if (is_admitted) {
    links_.push_back(
        std::make_unique<RankLink>(std::move(socket), name_of_rank(rank, ranks), patience_, true));
    links_.back()->begin_beating(others_patience);
  } else if (has_key) {
    throw_failure(cat(rank_subject, why));
  } else {
    last_stranger_ = "its key is another one";
  }
}

RankGroup RemoteRanks::load(const ModelOptions& options, const Device& device) {
  RankGroup group{0, ranks(), device.new_group_id(), {}};
  const std::string text =
      Json{{"options", json_of(options)}, {"group", json_of_bytes(group.id)}}.dump();
  for (const auto& link : links_) {
    link->send(Kind::load, text);
    group.links.push_back(link.get());
  }
  return group;
}

void RemoteRanks::wait_until_loaded() {
  weight_bytes_read_ = streamed_bytes_ = 0;
  for (const auto& link : links_) {
    from_message(link->receive(Kind::loaded), link->other(), [&](const Json& json) {
      weight_bytes_read_ += json.at("weight_bytes_read").get<std::size_t>();
      streamed_bytes_ += json.at("streamed_bytes").get<std::size_t>();
      return 0;
    });
  }
  has_loaded_ = true;
}

void RemoteRanks::make_pool(const KvLayout& layout) {
  for (const auto& link : links_) link->send(Kind::pool, json_of(layout).dump());
  for (const auto& link : links_) (void)link->receive(Kind::pooled);
}

void RemoteRanks::run(const ForwardBatch& batch, std::uint64_t epilogue) {
  const std::span<const std::byte> bytes = message_.write(batch, epilogue);
  for (const auto& link : links_) link->send(Kind::pass, {bytes});
}

void RemoteRanks::on_failure(const std::function<void(int rank, const std::string& why)>& hear) {
  for (std::size_t i = 0; i < links_.size(); ++i) {
    const int rank = static_cast<int>(i) + 1;
    links_[i]->on_failure([hear, rank](const std::string& why) { hear(rank, why); });
  }
}

void RemoteRanks::end() noexcept {
  if (std::exchange(has_ended_, true)) return;
  for (const auto& link : links_) {
    try {
      link->on_failure({});
      if (has_loaded_) {
        link->send(Kind::end, "");
      } else {
        link->abort("rank 0 gave up before the model was loaded; see what it says");
      }
    } catch (const std::exception&) {
      // It has ended already.
    }
  }
}

// --- another rank -------------------------------------------------------------------------------

JoinedRank::JoinedRank(const TcpAddress& address, const RankClaims& claims,
                       std::chrono::milliseconds patience,
                       const std::function<void(double share)>& waiting) {
  const std::string rank_0 = cat("rank 0 at ", address.host, ":", address.port);
  const Deadline deadline = deadline_in(patience);
  try {
    const Deadline since = deadline - patience;
    TcpSocket socket = TcpSocket::connect(address, deadline, [&] {
      if (waiting) waiting(share_over(since, deadline));
    });
    RankLink::send(socket, Kind::hello,
                   Json{{"build", claims.build},
                        {"model", claims.model},
                        {"key", claims.key},
                        {"patience", patience.count()}}
                       .dump(),
                   deadline);
    link_ = std::make_unique<RankLink>(std::move(socket), rank_0, patience, true);
  } catch (const Error& error) {
    throw_failure(cat(rank_subject, rank_0, ": ", error.what(),
                      "; start it with rank-address, and see that it can be reached"));
  }
  from_message(link_->receive(Kind::welcome), rank_0, [&](const Json& json) {
    json.at("rank").get_to(rank_);
    json.at("ranks").get_to(ranks_);
    json.at("cuda").get_to(device_.cuda);
    json.at("integer_products").get_to(device_.integer_products);
    device_.compute = static_cast<DType>(json.at("compute").get<int>());
    device_.kv = static_cast<DType>(json.at("kv").get<int>());
    link_->begin_beating(std::chrono::milliseconds(json.at("patience").get<std::int64_t>()));
    return 0;
  });
}

void JoinedRank::give_up(const std::string& why) noexcept {
  link_->abort(rank_failure(rank_, ranks_, why));
}

void JoinedRank::serve(const RankMemory& memory, Device& device, const Load& load) {
  try {
    link_->send(Kind::ready, Json{{"total", memory.device.total},
                                  {"free", memory.device.free},
                                  {"budget", memory.device.budget},
                                  {"host", memory.host}}
                                 .dump());
    follow(device, load);
  } catch (const std::exception& error) {
    give_up(error.what());
    throw;
  }
}

void JoinedRank::follow(Device& device, const Load& load) {
  std::unique_ptr<Communicator> communicator;
  std::unique_ptr<GraphModel> model;
  std::unique_ptr<KvPool> pool;
  std::unique_ptr<RankWatch> watch;
  PassMessage pass;
  const struct HearNoMore {
    ~HearNoMore() { link.on_failure({}); }
    RankLink& link;
  } hear_no_more{*link_};
  while (true) {
    const RankLink::Message message = link_->receive_any();
    switch (message.kind) {
      case Kind::load: {
        if (model != nullptr) throw_failure(cat(link_->other(), " asks for another model"));
        RankGroup group{rank_, ranks_, "", {link_.get()}};
        ModelOptions options = from_message(message, link_->other(), [&](const Json& json) {
          group.id = bytes_in(json.at("group"));
          return options_in(json.at("options"));
        });
        options.shard = {rank_, ranks_};
        communicator = device.join_group(group);
        // A GPU that waits for numbers of a rank that is gone must not wait for ever.
        link_->on_failure([&of = *communicator](const std::string& why) { of.abort(why); });
        model = load(options, *communicator);
        watch = std::make_unique<RankWatch>(
            link_->patience(), [&of = *model] { return of.has_finished(); },
            [this, &of = *communicator] {
              const std::string why = RankWatch::line(link_->patience());
              link_->abort(why);
              of.abort(why);
            });
        link_->send(Kind::loaded, Json{{"weight_bytes_read", model->weight_bytes_read()},
                                       {"streamed_bytes", model->streamed_bytes()}}
                                      .dump());
        break;
      }
      case Kind::pool:
        pool.reset();
        pool = std::make_unique<KvPool>(device, from_message(message, link_->other(), layout_in),
                                        rank_);
        link_->send(Kind::pooled, "");
        break;
      case Kind::pass: {
        if (model == nullptr || pool == nullptr) {
          throw_failure(cat(link_->other(), " asks for a pass of no model"));
        }
        pass.read(message.bytes);
        model->check(pass.inputs(), *pool);
        ElsewhereEpilogue epilogue(pass.epilogue());
        watch->begin();
        (void)model->run(pass.inputs(), *pool, pass.epilogue() == 0 ? nullptr : &epilogue);
        watch->end();
        break;
      }
      case Kind::end:
        return;
      default:
        throw_failure(cat(link_->other(), " sent a message of another kind"));
    }
  }
}

}  // namespace coppice
