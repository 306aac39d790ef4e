#include "engine/rank_process.h"

#include <algorithm>

#include "base/error.h"
#include "base/fingerprint.h"
#include "base/memory_limit.h"
#include "base/utf8.h"
#include "engine/loading.h"
#include "kernels/cuda_module.h"
#include "models/gguf/gguf_file.h"
#include "models/graph_model.h"
#include "models/model_folder.h"

namespace coppice {
namespace {

/// Changes with the messages that ranks send each other.
constexpr int protocol = 2;

constexpr const char* address_option = "rank-address";

RankClaims claims_of(const EngineOptions& options) {
  return {cat(cuda_module_build(), ", ranks ", protocol), fingerprint_of_folder(options.target),
          options.rank_key};
}

void require_key(const EngineOptions& options, bool is_loopback) {
  if (is_loopback || !options.rank_key.empty()) return;
  throw_usage(cat(address_option, " ", quote(options.rank_address),
                  ": other machines can reach it; give a rank-key, which the others are given, "
                  "too"));
}

// Keys travel as text in a hello, which has a limit.
void check_key(const std::string& key) {
  constexpr std::size_t most_bytes = 1024;
  if (key.size() > most_bytes) {
    throw_usage(cat("rank-key: the key has ", key.size(), " bytes; use at most ", most_bytes));
  }
  const bool has_controls = std::ranges::any_of(key, [](char of) {
    const auto byte = static_cast<unsigned char>(of);
    return byte < 0x20 || byte == 0x7f;
  });
  if (has_controls || !is_valid_utf8(key)) {
    throw_usage("rank-key: the key is no text; write random bytes as text, such as in hexadecimal");
  }
}

void tell_of_wait(const EngineOptions& options, const std::string& for_whom, double share) {
  if (options.progress) options.progress({for_whom.c_str(), share});
}

std::chrono::milliseconds checked_patience(const EngineOptions& options) {
  if (!(options.rank_timeout >= 0.01 && options.rank_timeout <= 1e6)) {
    throw_usage(cat("rank-timeout ", options.rank_timeout, ": use 0.01 to 1000000 seconds"));
  }
  return rank_patience(options);
}

}  // namespace

void check_rank_options(const EngineOptions& options) {
  (void)checked_patience(options);
  check_key(options.rank_key);
  if (options.rank_address.empty()) {
    if (!options.rank_key.empty()) {
      throw_usage("rank-key: it is for ranks in other processes; give rank-address, too");
    }
    return;
  }
  require_key(options, tcp_address(address_option, options.rank_address).is_loopback());
  if (options.tensor_parallel < 2) {
    throw_usage(cat(address_option,
                    ": it waits for other processes' ranks; say how many share the target, this "
                    "one included (tensor-parallel, at least 2)"));
  }
  if (options.draft_tensor_parallel > 1) {
    throw_usage(cat(address_option, ": the draft is whole on rank 0; leave draft-tensor-parallel ",
                    options.draft_tensor_parallel, " out"));
  }
  if (options.devices.size() > 1) {
    throw_usage(cat("devices: ", options.devices.size(),
                    " GPUs are listed, and with rank-address a process has one; list one"));
  }
}

std::unique_ptr<RemoteRanks> await_ranks(const EngineOptions& options, const Device& device) {
  if (options.rank_address.empty()) return nullptr;
  TcpListener listener(tcp_address(address_option, options.rank_address));
  require_key(options, listener.is_loopback());  // a name may mean any address
  const auto waiting = [&](int missing, double share) {
    tell_of_wait(options,
                 cat(missing, " of ", options.tensor_parallel, " ranks at ", options.rank_address),
                 share);
  };
  return std::make_unique<RemoteRanks>(listener, options.tensor_parallel, claims_of(options),
                                       RankDevice{device.name() == "cuda", device.compute_dtype(),
                                                  device.integer_products(), device.kv_dtype()},
                                       rank_patience(options), waiting);
}

void serve_rank(const EngineOptions& options,
                const std::function<void(int rank, int ranks)>& joined) {
  const TcpAddress address = tcp_address("connect", options.rank_address);
  const std::chrono::milliseconds patience = checked_patience(options);
  check_key(options.rank_key);
  check_device_limits(options);
  if (options.devices.size() > 1) {
    throw_usage(
        cat("devices: ", options.devices.size(), " GPUs are listed, and a rank has one; list one"));
  }
  if (options.target.empty()) throw_usage("target: no model folder was given");
  // The files that are fingerprinted are those that are loaded.
  const auto held = held_gguf(options.target);
  JoinedRank rank(address, claims_of(options), patience, [&](double share) {
    tell_of_wait(options, cat("rank 0 at ", options.rank_address), share);
  });
  joined(rank.rank(), rank.ranks());
  const std::unique_ptr<Device> device = [&] {
    try {
      return make_rank_device(options, rank.device());
    } catch (const std::exception& error) {
      rank.give_up(error.what());
      throw;
    }
  }();
  const DeviceScope scope(*device);
  rank.serve({device->memory(), available_memory()}, *device,
             [&](const ModelOptions& asked, Communicator& communicator) {
               ModelOptions limits = asked;
               if (!limits.stream_folder.empty()) limits.stream_folder = layers_folder();
               const ModelFiles files(options.target, limits.rounding);
               return load_joined(files, *device, limits, communicator, [&](double fraction) {
                 if (options.progress) options.progress({"target", fraction});
               });
             });
}

}  // namespace coppice
