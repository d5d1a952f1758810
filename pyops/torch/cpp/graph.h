/* Graphs: index tensors checked, and packed into the arrays that kernels read. Most of the source
   is one class. */
#pragma once
#include <pthread.h>
#include <algorithm>
#include <deque>
#include <memory>
#include <mutex>
#include <tuple>

#include "arguments.h"
#include "pyops.h"
#include "tables.h"

namespace pyops_torch {

enum Index {
  IN_OFFSETS,
  IN_NODES,
  IN_EDGES,
  IN_ORDER,
  IN_ENTRIES,
  OUT_OFFSETS,
  OUT_NODES,
  OUT_EDGES,
  OUT_ENTRIES,
  ID_OFFSETS,
  ID_ENTRIES,
  INDEX_COUNT
};
static_assert(std::size(index_names) == INDEX_COUNT);

/* What a program without Python and a process with it do in different ways: the number of threads
   of the next call if all can start, and errors. */
int32_t wanted_threads();
[[noreturn]] void raise_interrupt(const std::string &caller);
[[noreturn]] void raise_no_memory(const std::string &message);

/* New in a child process, which has no other threads that could release it. */
static std::mutex *trial = new std::mutex;
static thread_local int32_t started = 1;

/* Number of threads of the next call. */
int32_t team() {
  int32_t number = wanted_threads();
  if (number > started) {
    std::lock_guard<std::mutex> lock(*trial);
    pyops_startable_threads(number, &started);
  }
  return std::max(1, std::min(number, started));
}

void check_status(const std::string &caller, int32_t status) {
  if (status == PYOPS_INTERRUPTED) raise_interrupt(caller);
  if (status) raise_no_memory(caller + ": not enough memory for the working arrays");
}

const Tensor &check_indices(const std::string &label, const Tensor &tensor) {
  TORCH_CHECK_TYPE(tensor.layout() == at::kStrided, label, ": expected a dense tensor, got layout ",
                   tensor.layout());
  TORCH_CHECK_VALUE(tensor.is_cpu(), label, ": expected a tensor on the CPU, got one on ",
                    tensor.device());
  TORCH_CHECK_TYPE(tensor.scalar_type() == at::kInt || tensor.scalar_type() == at::kLong, label,
                   ": expected int32 or int64, got ", show(tensor.scalar_type()));
  TORCH_CHECK_VALUE(tensor.dim() == 1, label, ": expected one dimension, got shape ",
                    show(tensor.sizes()));
  return tensor;
}

void check_bounds(const std::string &label, const std::vector<int64_t> &indices, int64_t size,
                  const char *name, int64_t least = 0) {
  for (size_t i = 0; i < indices.size(); i++) {
    TORCH_CHECK_INDEX(indices[i] >= least && indices[i] < size, label, ": expected indices from ",
                      least, " to ", name, "-1=", size - 1, ", got ", indices[i], " at ", i);
  }
}

template <class T>
std::vector<T> copy(const Tensor &indices) {
  Tensor held = indices.contiguous();
  auto count = static_cast<size_t>(held.numel());
  if (held.scalar_type() == at::kInt) {
    const auto *first = held.const_data_ptr<int32_t>();
    return std::vector<T>(first, first + count);
  }
  const auto *first = held.const_data_ptr<int64_t>();
  std::vector<T> copied(count);
  std::transform(first, first + count, copied.begin(), [](int64_t i) { return static_cast<T>(i); });
  return copied;
}

template <class T>
bool same(const std::vector<T> &held, const Tensor &indices) {
  if (static_cast<int64_t>(held.size()) != indices.numel()) return false;
  Tensor given = indices.contiguous();
  return given.scalar_type() == at::kInt
             ? std::equal(held.begin(), held.end(), given.const_data_ptr<int32_t>())
             : std::equal(held.begin(), held.end(), given.const_data_ptr<int64_t>());
}

using RowNumbers = std::shared_ptr<const std::vector<int64_t>>;

/* Checked indices and sizes, and the arrays that kernels have read so far. */
class Graph {
 public:
  int64_t num_src, num_dst, num_edges;

  Graph(const Tensor &src, const Tensor &dst, const std::optional<Tensor> &ids,
        const Lengths &counts)
      : num_src(counts[0]), num_dst(counts[1]), num_edges(counts[2]) {
    int64_t entries = check_indices("Graph: src", src).numel();
    check_length("dst", check_indices("Graph: dst", dst).numel(), entries);
    if (ids) check_length("edge_ids", check_indices("Graph: edge_ids", *ids).numel(), entries);
    else check_length("num_edges", num_edges, entries);
    const char *names[] = {"num_src", "num_dst", "num_edges"};
    const int64_t most[] = {INT32_MAX - 1, INT32_MAX - 1, int64_t{1} << 40};
    for (size_t i = 0; i < 3; i++) {
      TORCH_CHECK_VALUE(counts[i] >= 0, "Graph: ", names[i], ": expected at least 0, got ",
                        counts[i]);
      TORCH_CHECK_VALUE(counts[i] <= most[i], "Graph: ", names[i], ": expected at most ", most[i],
                        ", got ", counts[i]);
    }
    check_bounds("Graph: src", copy<int64_t>(src), num_src, "num_src");
    check_bounds("Graph: dst", copy<int64_t>(dst), num_dst, "num_dst");
    if (ids) {
      ids_ = copy<int64_t>(*ids);
      check_bounds("Graph: edge_ids", *ids_, num_edges, "num_edges");
    }
    src_ = copy<int32_t>(src);
    dst_ = copy<int32_t>(dst);
  }

  bool is(const Tensor &src, const Tensor &dst, const std::optional<Tensor> &ids,
          const Lengths &counts) const {
    return counts == Lengths{num_src, num_dst, num_edges} && ids.has_value() == ids_.has_value() &&
           same(src_, src) && same(dst_, dst) && (!ids || same(*ids_, *ids));
  }

  int64_t num_entries() const { return static_cast<int64_t>(src_.size()); }

  /* Whether several entries share an edge. */
  bool shared() {
    std::lock_guard<std::mutex> lock(mutex_);
    if (!shared_) {
      std::vector<bool> seen(ids_ ? static_cast<size_t>(num_edges) : 0);
      shared_ = ids_ && std::any_of(ids_->begin(), ids_->end(), [&](int64_t id) {
                  bool before = seen[static_cast<size_t>(id)];
                  seen[static_cast<size_t>(id)] = true;
                  return before;
                });
    }
    return *shared_;
  }

  /* Returns an index array of the kernels, which lives as long as the graph. */
  const void *index(int name) {
    std::lock_guard<std::mutex> lock(mutex_);
    if (name == IN_NODES || name == OUT_NODES) return nodes(name).data();
    return array(name).data();
  }

  const std::vector<int64_t> &order() {
    std::lock_guard<std::mutex> lock(mutex_);
    return array(IN_ORDER);
  }

  /* Returns checked row numbers from 1, 0 for none. Those of the last call are not checked again.
   */
  RowNumbers rows(const std::string &label, const Indexed &option, const Tensor &given,
                  int64_t length) {
    std::lock_guard<std::mutex> lock(mutex_);
    check_indices(label, given);
    if (rows_ && option.name == rows_of_ && same(given_rows_, given)) return rows_;
    std::vector<int64_t> numbers = copy<int64_t>(given), counted = numbers;
    check_rows(label, option, numbers, length);
    for (int64_t &number : counted) number++;
    given_rows_ = std::move(numbers);
    rows_of_ = option.name;
    return rows_ = std::make_shared<const std::vector<int64_t>>(std::move(counted));
  }

 private:
  std::vector<int32_t> src_, dst_, nodes_[2];
  std::optional<std::vector<int64_t>> ids_;
  std::optional<bool> shared_;
  std::unique_ptr<std::vector<int64_t>> arrays_[INDEX_COUNT];
  std::vector<int64_t> given_rows_;
  const char *rows_of_ = nullptr;
  RowNumbers rows_;
  std::mutex mutex_;

  static void check_length(const char *name, int64_t length, int64_t entries) {
    TORCH_CHECK_VALUE(length == entries, "Graph: ", name, ": expected len(src)=", entries, ", got ",
                      length);
  }

  const std::vector<int64_t> &array(int name) {
    if (!arrays_[name]) make(name);
    return *arrays_[name];
  }

  std::vector<int64_t> &store(int name, int64_t count) {
    arrays_[name] = std::make_unique<std::vector<int64_t>>(static_cast<size_t>(count));
    return *arrays_[name];
  }

  void make(int name) {
    switch (name) {
      case IN_OFFSETS:
      case IN_ORDER: return sort(dst_, num_dst, IN_OFFSETS, IN_ORDER);
      case OUT_OFFSETS: return sort(src_, num_src, OUT_OFFSETS, INDEX_COUNT);
      case IN_EDGES:
      case OUT_EDGES: return make_edges(name);
      case IN_ENTRIES: return make_entries(name, out_order(), array(IN_ORDER));
      case OUT_ENTRIES: return make_entries(name, array(IN_ORDER), out_order());
      default: return make_ids();
    }
  }

  const std::vector<int64_t> &out_order() {
    array(OUT_OFFSETS);
    return out_order_;
  }

  std::vector<int64_t> out_order_;

  void sort(const std::vector<int32_t> &ends, int64_t rows, int offsets, int order) {
    std::vector<int64_t> sorted(ends.size()), starts(static_cast<size_t>(rows) + 1);
    int32_t status = 0;
    pyops_pack_ends(rows, num_entries(), team(), ends.data(), starts.data(), sorted.data(),
                    &status);
    check_status("Graph", status);
    if (order == IN_ORDER) store(order, 0) = std::move(sorted);
    else out_order_ = std::move(sorted);
    store(offsets, 0) = std::move(starts);
  }

  void make_edges(int name) {
    const std::vector<int64_t> &order = name == IN_EDGES ? array(IN_ORDER) : out_order();
    std::vector<int64_t> &edges = store(name, num_entries());
    for (size_t k = 0; k < order.size(); k++) {
      edges[k] = ids_ ? (*ids_)[static_cast<size_t>(order[k] - 1)] + 1 : order[k];
    }
  }

  /* Maps the entries in one order to their places in another. */
  void make_entries(int name, const std::vector<int64_t> &places,
                    const std::vector<int64_t> &order) {
    std::vector<int64_t> inverse(places.size()), &entries = store(name, num_entries());
    for (size_t k = 0; k < places.size(); k++) {
      inverse[static_cast<size_t>(places[k] - 1)] = static_cast<int64_t>(k + 1);
    }
    for (size_t k = 0; k < order.size(); k++) {
      entries[k] = inverse[static_cast<size_t>(order[k] - 1)];
    }
  }

  void make_ids() {
    const std::vector<int64_t> &edges = array(IN_EDGES);
    std::vector<int64_t> &offsets = store(ID_OFFSETS, num_edges + 1);
    std::vector<int64_t> &entries = store(ID_ENTRIES, num_entries());
    int32_t shared = 0, status = 0;
    pyops_pack_ids(num_edges, num_entries(), edges.data(), offsets.data(), entries.data(), &shared,
                   &status);
    check_status("Graph", status);
  }

  const std::vector<int32_t> &nodes(int name) {
    bool in = name == IN_NODES;
    std::vector<int32_t> &found = nodes_[!in];
    if (found.size() != src_.size()) {
      const std::vector<int64_t> &order = in ? array(IN_ORDER) : out_order();
      std::vector<int32_t> made(src_.size());
      pyops_take_ends(num_entries(), team(), order.data(), in ? src_.data() : dst_.data(),
                      made.data());
      found = std::move(made);
    }
    return found;
  }

  void check_rows(const std::string &label, const Indexed &option, const std::vector<int64_t> &rows,
                  int64_t length) const {
    auto count = static_cast<int64_t>(rows.size());
    TORCH_CHECK_VALUE(count == length, label, ": expected ", option.length_text, "=", length,
                      " numbers, got ", count);
    check_bounds(label, rows, length, option.length_text, -1);
    if (option.reverses) check_reverses(label, rows);
  }

  /* Checks that each edge with a reverse is the reverse of it, between the same nodes. */
  void check_reverses(const std::string &label, const std::vector<int64_t> &rows) const {
    for (size_t edge = 0; edge < rows.size(); edge++) {
      int64_t back =
          rows[edge] < 0 ? static_cast<int64_t>(edge) : rows[static_cast<size_t>(rows[edge])];
      TORCH_CHECK_VALUE(back == static_cast<int64_t>(edge), label,
                        ": expected the reverse of an edge to have that edge as its reverse, got ",
                        rows[edge], " for ", edge, " and ", back, " for ", rows[edge]);
    }
    using End = std::tuple<int64_t, int32_t, int32_t>;
    std::vector<End> here, reversed;
    for (size_t k = 0; k < src_.size(); k++) {
      int64_t id = ids_ ? (*ids_)[k] : static_cast<int64_t>(k);
      int64_t other = rows[static_cast<size_t>(id)];
      if (other < 0) continue;
      here.emplace_back(id, src_[k], dst_[k]);
      reversed.emplace_back(other, dst_[k], src_[k]);
    }
    std::sort(here.begin(), here.end());
    std::sort(reversed.begin(), reversed.end());
    auto [one, two] = std::mismatch(here.begin(), here.end(), reversed.begin());
    if (one == here.end()) return;
    int64_t edge = std::min(std::get<0>(*one), std::get<0>(*two));
    TORCH_CHECK_VALUE(false, label,
                      ": expected the reverse of an edge to run from its destination to its "
                      "source, got ",
                      rows[static_cast<size_t>(edge)], " for ", edge, ", which does not");
  }
};

/* Recent graphs, the last used first. */
struct Recent {
  std::mutex mutex;
  std::deque<std::shared_ptr<Graph>> graphs;
};

static Recent *recent = new Recent;

/* Leaves what another thread may have locked when it forked to the parent. */
static void forget() {
  trial = new std::mutex;
  recent = new Recent;
  started = 1;
}

static const int forgets [[maybe_unused]] = pthread_atfork(nullptr, nullptr, forget);

/* Returns the graph of index tensors, packed once for recent calls with equal indices. */
std::shared_ptr<Graph> graph_of(const IValue *given) {
  const size_t most = 16;
  Tensor src = given[0].toTensor(), dst = given[1].toTensor();
  auto ids = given[2].toOptional<Tensor>();
  Lengths counts;
  for (int i = 3; i < 6; i++) counts.push_back(given[i].toSymInt().guard_int(__FILE__, __LINE__));
  check_indices("Graph: src", src);
  check_indices("Graph: dst", dst);
  if (ids) check_indices("Graph: edge_ids", *ids);
  std::deque<std::shared_ptr<Graph>> known;
  {
    std::lock_guard<std::mutex> lock(recent->mutex);
    known = recent->graphs;
  }
  auto equal = [&](const auto &graph) { return graph->is(src, dst, ids, counts); };
  auto found = std::find_if(known.begin(), known.end(), equal);
  if (found != known.end() && found == known.begin()) return *found;
  auto graph = found != known.end() ? *found : std::make_shared<Graph>(src, dst, ids, counts);
  std::lock_guard<std::mutex> lock(recent->mutex);
  auto &graphs = recent->graphs;
  graphs.erase(std::remove(graphs.begin(), graphs.end(), graph), graphs.end());
  graphs.push_front(graph);
  if (graphs.size() > most) graphs.pop_back();
  return graph;
}

}  // namespace pyops_torch
