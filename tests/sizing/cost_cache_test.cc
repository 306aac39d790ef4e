// Costs kept from one start to the next.
#include "sizing/cost_cache.h"

#include <gtest/gtest.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

#include "engine/engine_impl.h"
#include "engine/pair.h"
#include "models/kv/kv_slots.h"
#include "sizing/constants.h"
#include "sizing/cost_measurement.h"

namespace coppice {
namespace {

namespace fs = std::filesystem;

// Sets a variable and brings back what it was.
class Variable {
 public:
  Variable(const char* name, const char* value) : name_(name) {
    if (const char* former = std::getenv(name)) former_ = former;
    set(value);
  }
  ~Variable() { set(former_ ? former_->c_str() : nullptr); }
  Variable(const Variable&) = delete;
  Variable& operator=(const Variable&) = delete;

 private:
  void set(const char* value) { value != nullptr ? setenv(name_, value, 1) : unsetenv(name_); }
  const char* name_;
  std::optional<std::string> former_;
};

CostTable table(double scale) {
  const auto costs = [&](double base) {
    return PassCosts(1, 100, {{1, base, 1.1 * base}, {8, 1.5 * base, 1.6 * base}});
  };
  return {"anything", costs(scale * 1e-3), costs(scale * 1e-4)};
}

std::vector<fs::path> files_in(const fs::path& folder) {
  std::vector<fs::path> files;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(folder, ignored)) files.push_back(entry.path());
  return files;
}

GenerateOptions automatic() {
  GenerateOptions request;
  request.max_new_tokens = 4;
  request.ignore_eos = true;
  return request;
}

const std::vector<TokenId> prompt = {1, 5, 9};

TEST(CostCache, LiesWhereTheUserKeepsCaches) {
  const Variable home("HOME", "/home/somebody");
  {
    const Variable cache("XDG_CACHE_HOME", "/var/caches");
    EXPECT_EQ(cost_cache_folder(), "/var/caches/coppice");
  }
  for (const char* not_absolute : {static_cast<const char*>(nullptr), "", "caches"}) {
    const Variable cache("XDG_CACHE_HOME", not_absolute);
    EXPECT_EQ(cost_cache_folder(), "/home/somebody/.cache/coppice");
    const Variable nobody("HOME", nullptr);
    EXPECT_EQ(cost_cache_folder(), "");
  }
}

TEST(CostCache, KeepsTablesByTheirKeys) {
  const testing::TemporaryFolder folder;
  const fs::path cache = folder.path() / "made" / "when needed";
  EXPECT_FALSE(cached_costs(cache, "one"));
  cache_costs(cache, "one", table(1.0));
  cache_costs(cache, "two", table(3.0));
  const auto one = cached_costs(cache, "one"), two = cached_costs(cache, "two");
  ASSERT_TRUE(one && two);
  EXPECT_EQ(one->target.seconds(8, 1), table(1.0).target.seconds(8, 1));
  EXPECT_EQ(two->target.seconds(8, 1), table(3.0).target.seconds(8, 1));
  EXPECT_FALSE(cached_costs(cache, "three"));
  EXPECT_FALSE(cached_costs("", "one"));
  cache_costs("", "one", table(1.0));
  // Files of others, and what a disk may leave behind.
  const auto file = files_in(cache).front();
  for (const char* bad : {"", "{", "[1]", "{\"fingerprint\": \"one\"}"}) {
    std::ofstream(file) << bad;
    EXPECT_FALSE(cached_costs(cache, "one") && cached_costs(cache, "two")) << bad;
  }
  cache_costs(cache, "one", table(1.0));
  cache_costs(cache, "two", table(1.0));
  EXPECT_TRUE(cached_costs(cache, "one") && cached_costs(cache, "two"));
}

TEST(CostCache, DropsTheOldest) {
  const testing::TemporaryFolder folder;
  const std::vector<std::string> others = {"of another program", "costs-2024.json", "costs-"};
  for (const std::string& other : others) std::ofstream(folder.path() / other) << "{}";
  // Somebody's table under a name that does not say what it holds.
  write_cost_table(folder.path() / "costs-1.json", table(1.0));
  fs::create_symlink(folder.path() / "of another program", folder.path() / "costs-2.json");
  for (int i = 0; i < 130; ++i) cache_costs(folder.path(), std::to_string(i), table(1.0));
  EXPECT_EQ(files_in(folder.path()).size(), 101u + others.size() + 2u);
  EXPECT_TRUE(cached_costs(folder.path(), "129"));
  for (const std::string& other : others) EXPECT_TRUE(fs::exists(folder.path() / other)) << other;
  EXPECT_TRUE(fs::exists(folder.path() / "costs-1.json"));
  EXPECT_TRUE(fs::is_symlink(folder.path() / "costs-2.json"));
}

TEST(CostCache, LeavesWhatALinkLeadsTo) {
  const testing::TemporaryFolder folder;
  const fs::path cache = folder.path() / "cache", own = folder.path() / "own";
  cache_costs(cache, "key", table(1.0));
  const fs::path file = files_in(cache).front();
  fs::rename(file, own);
  for (const fs::path& led_to : {own, folder.path() / "free"}) {
    fs::create_symlink(led_to, file);
    EXPECT_FALSE(cached_costs(cache, "key"));
    cache_costs(cache, "key", table(3.0));
    EXPECT_EQ(fs::read_symlink(file), led_to);
    fs::remove(file);
  }
  EXPECT_FALSE(fs::exists(folder.path() / "free"));
  EXPECT_EQ(read_cost_table(own, "key")->target.seconds(8, 1), table(1.0).target.seconds(8, 1));
  // Nobody writes to the pipe.
  ASSERT_EQ(mkfifo(file.c_str(), 0600), 0);
  EXPECT_FALSE(cached_costs(cache, "key"));
  cache_costs(cache, "key", table(3.0));
  EXPECT_TRUE(fs::is_fifo(file));
}

TEST(CostCache, ABusyStartSpoilsNoGoodTable) {
  const CostTable good = table(1.0);
  CostTable kept = good;
  for (int start = 1; start < SizingConstants::most_doubts; ++start) {
    kept = table_to_keep(kept, table(3.0));
    EXPECT_EQ(kept.target.seconds(8, 1), good.target.seconds(8, 1));
    EXPECT_EQ(kept.draft.seconds(1, 100), good.draft.seconds(1, 100));
    EXPECT_EQ(kept.doubts, start);
  }
  // Start after start: it is another machine by now.
  kept = table_to_keep(kept, table(3.0));
  EXPECT_EQ(kept.target.seconds(8, 1), table(3.0).target.seconds(8, 1));
  EXPECT_EQ(kept.doubts, 0);
  // A table from a busy start gives way at once, row by row.
  CostTable busy = table(1.0);
  busy.target = PassCosts(1, 100, {{1, 1e-3, 1.1e-3}, {4, 9e-3, 9e-3}, {8, 9e-3, 9e-3}});
  const CostTable both = table_to_keep(busy, good);
  EXPECT_EQ(both.target.seconds(8, 1), good.target.seconds(8, 1));
  EXPECT_LE(both.target.seconds(4, 1), good.target.seconds(8, 1));
}

TEST(CostCache, AnUnusableFolderIsNoError) {
  const testing::TemporaryFolder folder;
  std::ofstream(folder.path() / "file") << "no folder";
  cache_costs(folder.path() / "file" / "coppice", "key", table(1.0));
  EXPECT_FALSE(cached_costs(folder.path() / "file" / "coppice", "key"));
  const Variable cache("XDG_CACHE_HOME", (folder.path() / "file").c_str());
  const testing::TinyPair pair;
  EXPECT_EQ(Engine::load(pair.options()).generate(prompt, automatic()).tokens.size(), 4u);
}

TEST(CostCache, ManyMayReadAndWriteOneTable) {
  const testing::TemporaryFolder folder;
  const fs::path file = folder.path() / "costs.json";
  std::vector<std::thread> users;
  std::atomic<int> failures = 0;
  for (int user = 0; user < 8; ++user) {
    users.emplace_back([&, user] {
      for (int i = 0; i < 25; ++i) {
        try {
          write_cost_table(file, table(1.0 + user));
          if (!read_cost_table(file, "anything")) ++failures;
          cache_costs(folder.path() / "cache", "key", table(1.0 + user));
          if (!cached_costs(folder.path() / "cache", "key")) ++failures;
        } catch (const Error& error) {
          ADD_FAILURE() << error.what();
        }
      }
    });
  }
  for (std::thread& user : users) user.join();
  EXPECT_EQ(failures, 0);
  EXPECT_EQ(files_in(folder.path()).size(), 2u) << "temporary files are left";
  EXPECT_EQ(files_in(folder.path() / "cache").size(), 1u);
}

// Most rows of a pass may be a number that is timed anyway: it is timed once.
TEST(CostTableFile, IsReadAgainWhateverTheMemory) {
  const testing::TinyPair pair;
  for (const std::int32_t slots : {32, 64, 96, 128}) {
    EngineOptions options = pair.options();
    options.cost_cache = false;
    options.max_tree_size = 15;
    options.kv_tokens = slots;
    options.cost_table = pair.path() / std::to_string(slots);
    Engine::load(options).generate(prompt, automatic());
    ASSERT_TRUE(std::filesystem::exists(options.cost_table));
    Engine again = Engine::load(options);
    EXPECT_NO_THROW(again.generate(prompt, automatic())) << slots;
  }
}

TEST(CostCache, EnginesUseItUnlessToldOtherwise) {
  const testing::TemporaryFolder folder;
  const Variable cache("XDG_CACHE_HOME", folder.path().c_str());
  const testing::TinyPair pair;
  EngineOptions options = pair.options();
  options.cost_cache = false;
  Engine::load(options).generate(prompt, automatic());
  options.cost_cache = true;
  options.cost_table = pair.path() / "costs.json";
  Engine::load(options).generate(prompt, automatic());
  EXPECT_TRUE(files_in(cost_cache_folder()).empty());
  options.cost_table.clear();
  GenerateOptions plain = automatic();
  plain.speculation = Plain{};
  Engine::load(options).generate(prompt, plain);
  EXPECT_TRUE(files_in(cost_cache_folder()).empty()) << "plain decoding needs no costs";

  Engine engine = Engine::load(options);
  engine.generate(prompt, automatic());
  EXPECT_EQ(files_in(cost_cache_folder()).size(), 1u);
  const auto key = cost_cache_key(options, inside(engine).target, inside(engine).draft);
  const auto kept = cached_costs(cost_cache_folder(), key);
  ASSERT_TRUE(kept);
  EXPECT_EQ(kept->target.seconds(2, 1), inside(engine).costs->target.seconds(2, 1));
  EXPECT_FALSE(inside(engine).costs_are_saved) << "sizes still follow the clock";

  // A table that is off, as after a move to another machine, is measured anew and replaced.
  CostTable off = *kept;
  off.draft = table(1e3).draft;
  cache_costs(cost_cache_folder(), key, off);
  Engine second = Engine::load(options);
  second.generate(prompt, automatic());
  EXPECT_LT(inside(second).costs->draft.seconds(1, 1), 1e-2);
  const auto replaced = cached_costs(cost_cache_folder(), key);
  ASSERT_TRUE(replaced);
  EXPECT_LT(replaced->draft.seconds(1, 1), 1e-2);
}

TEST(CostCache, TheKeyTellsEnginesApart) {
  const testing::TinyPair pair;
  const auto key = [&](const EngineOptions& options) {
    Engine engine = Engine::load(options);
    return cost_cache_key(options, inside(engine).target, inside(engine).draft);
  };
  const EngineOptions options = pair.options();
  const std::string before = key(options);
  EXPECT_EQ(key(options), before);
  EngineOptions more_threads = options;
  more_threads.threads = 2;
  EngineOptions larger_trees = options;
  larger_trees.max_tree_size += 1;
  EngineOptions more_kv = options;
  more_kv.kv_tokens = 4096;
  EngineOptions larger_passes = options;
  larger_passes.max_sequences = 8;
  larger_passes.max_batch_rows = 300;
  EXPECT_NE(key(larger_trees), before);
  EXPECT_NE(key(larger_passes), before);
  EXPECT_NE(key(more_kv), before);
  if (!testing::on_cuda()) {
    EXPECT_NE(key(more_threads), before);
  }
  const fs::path weights = options.target / "model.safetensors";
  fs::last_write_time(weights, fs::last_write_time(weights) + std::chrono::hours(1));
  EXPECT_NE(key(options), before);
}

// Costs that were measured while texts hold most of the pool are of few rows. They serve until
// there is room, for steps of no more rows, and are kept nowhere.
TEST(CostCache, ACutTableIsNotKept) {
  const testing::TemporaryFolder folder;
  const Variable cache("XDG_CACHE_HOME", folder.path().c_str());
  const testing::TinyPair pair;
  EngineOptions options = pair.options();
  options.cost_cache = true;
  options.max_sequences = 1;
  options.kv_tokens = 256;
  Engine engine = Engine::load(options);
  Engine::Impl& impl = inside(engine);
  const std::int32_t all = impl.measured_rows().pass;
  const auto measured = [&] { return impl.costs->target.points().back().rows; };
  {
    KvSlots held(impl.target.pool.get());
    ASSERT_TRUE(held.take(impl.target.pool->free_slots() - 24));
    engine.generate(prompt, automatic());
    ASSERT_TRUE(impl.costs);
    EXPECT_TRUE(impl.costs->cut);
    EXPECT_LE(measured(), 12);
    EXPECT_TRUE(files_in(cost_cache_folder()).empty());
    const Generation text = engine.generate(prompt, automatic());
    EXPECT_LE(text.statistics.tree_size_mean, measured() - 1.0);
  }
  const CostTable* const before = &*impl.costs;
  engine.generate(prompt, automatic());
  EXPECT_FALSE(impl.costs->cut);
  EXPECT_EQ(&*impl.costs, before) << "texts that are being written go by it";
  EXPECT_GT(measured(), 12);
  EXPECT_LE(measured(), all);
  EXPECT_EQ(files_in(cost_cache_folder()).size(), 1u);
}

// A busy machine may leave no time for the last of them: here there is all the time in the world.
TEST(CostCache, SeveralTextsHaveLargerPassesMeasured) {
  const testing::TinyPair pair;
  EngineOptions options = pair.options();
  options.cost_cache = false;
  options.max_tree_size = 16;
  options.max_sequences = 1;
  constexpr double budget_seconds = 1e6;
  const auto most_rows = [&](Engine engine) {
    return EngineAccess(engine).find_costs(budget_seconds)->target.points().back().rows;
  };
  EXPECT_EQ(most_rows(Engine::load(options)), 17);
  options.max_sequences = 8;
  options.max_batch_rows = 100;
  EXPECT_EQ(most_rows(Engine::load(options)), 100);
}

// As by Ctrl-C, a text that was to come first. The next one measures.
TEST(CostCache, MeasuringStopsWhenAsked) {
  const testing::TemporaryFolder folder;
  const Variable cache("XDG_CACHE_HOME", folder.path().c_str());
  const testing::TinyPair pair;
  EngineOptions options = pair.options();
  options.cost_cache = true;
  std::stop_source stop;
  std::vector<double> told;
  options.progress = [&](const LoadEvent& event) {
    if (std::string(event.what) != "costs") return;
    told.push_back(event.fraction);
    stop.request_stop();
  };
  Engine engine = Engine::load(options);
  Engine::Impl& impl = inside(engine);
  Request request;
  request.tokens = prompt;
  request.options = automatic();
  const Outcome stopped = engine.generate({&request, 1}, {}, stop.get_token()).front();
  EXPECT_FALSE(stopped.error);
  EXPECT_EQ(stopped.samples.front().finish_reason, FinishReason::cancelled);
  EXPECT_FALSE(impl.costs);
  EXPECT_TRUE(files_in(cost_cache_folder()).empty());
  testing::expect_nothing_leaked(engine);

  EXPECT_EQ(engine.generate(prompt, automatic()).tokens.size(), 4u);
  ASSERT_TRUE(impl.costs);
  EXPECT_EQ(files_in(cost_cache_folder()).size(), 1u);
  EXPECT_EQ(told, (std::vector<double>{0.0, 0.0, 1.0}));

  const std::lock_guard lock(impl.mutex);
  const DeviceScope scope(*impl.device);
  const MeasuredRows rows = impl.measured_rows();
  EXPECT_FALSE(
      measure_costs(impl.target, impl.draft, impl.sampler.get(), rows, 1e6, stop.get_token()));
  EXPECT_EQ(
      check_table(*impl.costs, impl.target, impl.draft, impl.sampler.get(), rows, stop.get_token()),
      TableCheck::differs);
}

// Noise may spoil a check, which then costs a measurement; not one after the other.
TEST(CostCache, ATableJustMeasuredHolds) {
  const testing::TinyPair pair;
  Engine engine = Engine::load(pair.options());
  Engine::Impl& impl = inside(engine);
  const std::lock_guard lock(impl.mutex);
  const DeviceScope scope(*impl.device);
  bool held = false;
  for (int i = 0; i < 20 && !held; ++i) {
    const auto costs = measure_costs(impl.target, impl.draft, impl.sampler.get(), {65, 65}, 0.02);
    ASSERT_TRUE(costs);
    EXPECT_GE(costs->target.points().size(), 2u);
    const auto check = [&](const CostTable& checked) {
      return check_table(checked, impl.target, impl.draft, impl.sampler.get(), {65, 65});
    };
    held = check(*costs) == TableCheck::holds;
    // Load makes passes longer than a table says, never shorter.
    EXPECT_EQ(check(table(1e3)), TableCheck::differs);
  }
  EXPECT_TRUE(held);
  testing::expect_nothing_leaked(engine);
}

/// Programs that take the processors from this one: two for each.
class BusyMachine {
 public:
  BusyMachine() {
    for (unsigned i = 0; i < 2 * std::thread::hardware_concurrency(); ++i) {
      const pid_t child = fork();
      if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        for (volatile bool busy = true; busy;) continue;
      }
      children_.push_back(child);
    }
  }
  ~BusyMachine() {
    for (const pid_t child : children_) {
      kill(child, SIGKILL);
      waitpid(child, nullptr, 0);
    }
  }
  BusyMachine(const BusyMachine&) = delete;
  BusyMachine& operator=(const BusyMachine&) = delete;

 private:
  std::vector<pid_t> children_;
};

// Every start of a busy machine would else measure, for seconds, costs that are wrong.
TEST(CostCache, ABusyMachineKeepsItsTable) {
  if (testing::on_cuda()) GTEST_SKIP() << "the host's load says little of a GPU's passes";
  const testing::TemporaryFolder folder;
  const Variable cache("XDG_CACHE_HOME", folder.path().c_str());
  const testing::TinyPair pair;
  EngineOptions options = pair.options();
  options.cost_cache = true;
  Engine first = Engine::load(options);
  first.generate(prompt, automatic());
  const std::string key = cost_cache_key(options, inside(first).target, inside(first).draft);
  // A twentieth of what passes take here: no check under this load finds that it holds.
  const auto faster = [](const PassCosts& costs) {
    std::vector<PassCosts::Point> points = costs.points();
    for (PassCosts::Point& point : points) {
      point.seconds_short /= 20.0;
      point.seconds_long /= 20.0;
    }
    return PassCosts(costs.prefix_short(), costs.prefix_long(), points);
  };
  CostTable idle = *cached_costs(cost_cache_folder(), key);
  idle.target = faster(idle.target);
  idle.draft = faster(idle.draft);
  cache_costs(cost_cache_folder(), key, idle);
  const BusyMachine busy;
  Engine second = Engine::load(options);
  second.generate(prompt, automatic());
  EXPECT_EQ(inside(second).costs->target.seconds(2, 1), idle.target.seconds(2, 1));
  EXPECT_EQ(cached_costs(cost_cache_folder(), key)->doubts, 0);
}

}  // namespace
}  // namespace coppice
