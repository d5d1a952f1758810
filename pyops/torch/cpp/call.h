/* Calls: tensors and options checked, sizes solved, results allocated, the kernel called. The steps
   of a call share its state, so they are one class and one source. */
#pragma once
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <cmath>
#include <cstring>

#include "graph.h"

extern "C" {
#include "calls.h"
}

namespace pyops_torch {

/* Array that a kernel may take, with its declared shape. */
struct Parameter {
  std::string label;
  Tensor tensor; /* undefined if absent */
  const Input *input; /* NULL for gy */
  Shape shape;
  bool is_input;
};

/* Call of a phase on the memory of tensors, from the checks to the results. */
class Call {
 public:
  Call(const Phase &phase, Arguments arguments)
      : phase_(phase), op_(*phase.op), caller_(phase.caller), arguments_(std::move(arguments)) {}

  std::vector<Tensor> run() {
    if (op_.has_graph) graph_ = graph_of(arguments_.graph.data());
    check_options();
    check_wanted();
    collect();
    check_arrays();
    choose_forms();
    solve_sizes();
    check_shapes();
    allocate();
    execute();
    return results();
  }

 private:
  const Phase &phase_;
  const Operator &op_;
  std::string caller_;
  Arguments arguments_;
  std::shared_ptr<Graph> graph_;
  std::vector<Slot> options_; /* codes and numbers */
  std::vector<Parameter> parameters_;
  std::vector<Shape> shapes_; /* of the inputs, in their forms */
  std::vector<Wide> known_;
  uint64_t found_ = 0; /* bits of the known sizes */
  std::vector<Tensor> outputs_;
  std::vector<c10::ScalarType> result_types_;
  c10::ScalarType type_ = at::kFloat;
  int64_t packed_ = 0;

  size_t inputs() const { return op_.inputs.size(); }

  bool second() const { return phase_.step == Step::DOUBLE_BACKWARD || phase_.step == Step::JVP; }

  bool values() const { return phase_.step == Step::FORWARD || phase_.step == Step::ATTENTION; }

  bool absent(size_t input) const { return !arguments_.tensors[input].defined(); }

  void set(int name, Wide value) {
    known_[static_cast<size_t>(name)] = value;
    found_ |= uint64_t{1} << name;
  }

  void check_options() {
    known_.assign(op_.sizes.size() + 1, 0);
    if (graph_) {
      const int64_t counts[] = {graph_->num_src, graph_->num_dst, graph_->num_edges,
                                graph_->num_entries()};
      for (int i = 0; i < 4; i++) set(i, counts[i]);
    }
    for (size_t i = 0; i < op_.options.size(); i++) {
      options_.push_back(check_option(op_.options[i], arguments_.options[i]));
    }
  }

  Slot check_option(const Option &option, const IValue &value) {
    std::string label = caller_ + ": " + option.name;
    Slot slot = {};
    if (option.kind == Kind::FLAG) {
      slot.integer = value.toBool();
    } else if (option.kind == Kind::NUMBER) {
      slot.real = value.toDouble();
      TORCH_CHECK_VALUE(std::isfinite(slot.real), label, ": expected a finite number, got ",
                        slot.real);
    } else if (option.kind == Kind::SIZE) {
      slot.integer = value.toInt();
      std::string most = option.most == INT32_MAX ? "2**31 - 1" : std::to_string(option.most);
      TORCH_CHECK_VALUE(slot.integer >= option.least && slot.integer <= option.most, label,
                        ": expected an integer from ", option.least, " to ", most, ", got ",
                        slot.integer);
      set(option.size, slot.integer);
    } else {
      std::string given = value.toStringRef();
      std::vector<std::string> words;
      for (const char *word : option.choices) {
        words.push_back("'" + std::string(word) + "'");
        if (given == word) slot.integer = static_cast<int64_t>(words.size());
      }
      TORCH_CHECK_VALUE(slot.integer, label, ": expected one of ", tuple(words), ", got '", given,
                        "'");
    }
    return slot;
  }

  void check_wanted() {
    size_t count = inputs() + (phase_.step == Step::DOUBLE_BACKWARD);
    if (values()) arguments_.wanted.assign(1, true);
    if (phase_.step == Step::JVP) {
      arguments_.wanted.assign(inputs() + 1, false);
      arguments_.wanted.back() = true;
    }
    if (!has_wanted(phase_)) return;
    TORCH_CHECK_VALUE(arguments_.wanted.size() == count, caller_, ": wanted: expected ", count,
                      " flags, got ", arguments_.wanted.size());
    for (size_t i = 0; i < inputs(); i++) {
      TORCH_CHECK_VALUE(!arguments_.wanted[i] || !absent(i), caller_,
                        ": wanted: expected names of inputs given, ", op_.inputs[i].name,
                        " is None");
    }
  }

  /* Lists the tensors by their places in the tables: inputs, gy, tangents or cotangents. */
  void collect() {
    std::vector<Tensor> &given = arguments_.tensors;
    if (phase_.step == Step::JVP) given.insert(given.begin() + op_.inputs.count, Tensor());
    bool some = op_.one_of.count == 0;
    for (int i : op_.one_of) some = some || !absent(static_cast<size_t>(i));
    if (!some) {
      std::string names;
      for (int i : op_.one_of) {
        names +=
            (names.empty() ? "" : " or ") + std::string(op_.inputs[static_cast<size_t>(i)].name);
      }
      TORCH_CHECK_TYPE(false, caller_, ": expected ", names, ", got neither");
    }
    std::string tag = phase_.step == Step::JVP ? "t" : "h";
    for (size_t i = 0; i < given.size(); i++) {
      size_t place = i > inputs() ? i - inputs() - 1 : i;
      const Input *input = i == inputs() ? nullptr : &op_.inputs[place];
      std::string label = !input ? "gy" : (i > inputs() ? tag : "") + input->name;
      Shape shape = input ? input->forms[0] : op_.output;
      parameters_.push_back({label, given[i], input, shape, i < inputs()});
    }
  }

  static bool is_half(c10::ScalarType type) { return type == at::kHalf || type == at::kBFloat16; }

  void check_arrays() {
    bool half = false;
    for (const Parameter &p : parameters_) {
      if (!p.tensor.defined()) continue;
      std::string label = caller_ + ": " + p.label;
      TORCH_CHECK_VALUE(p.tensor.is_cpu(), label, ": expected a tensor on the CPU, got one on ",
                        p.tensor.device());
      TORCH_CHECK_TYPE(p.tensor.layout() == at::kStrided, label,
                       ": expected a dense tensor, got layout ", p.tensor.layout());
      half = half || is_half(p.tensor.scalar_type());
    }
    choose_types(half);
    std::string first;
    for (Parameter &p : parameters_) {
      if (!p.tensor.defined()) continue;
      if (is_half(p.tensor.scalar_type())) p.tensor = p.tensor.to(at::kFloat);
      check_array(p, first);
      p.tensor = p.tensor.contiguous();
    }
  }

  void check_array(const Parameter &p, std::string &first) {
    std::string label = caller_ + ": " + p.label;
    c10::ScalarType type = p.tensor.scalar_type();
    TORCH_CHECK_TYPE(type == at::kFloat || type == at::kDouble, label,
                     ": expected float32 or float64, got ", show(type));
    int forms = p.input ? p.input->form_count : 1;
    bool fits = false;
    std::string text;
    for (int i = 0; i < forms; i++) {
      const Shape &form = p.input ? p.input->forms[i] : p.shape;
      fits = fits || p.tensor.dim() == form.count;
      text += (i ? " or " : "") + show_shape(form, 0);
    }
    TORCH_CHECK_VALUE(fits, label, ": expected shape ", text, ", got ", show(p.tensor.sizes()));
    if (first.empty()) {
      first = p.label;
      type_ = type;
    }
    TORCH_CHECK_TYPE(type == type_, label, ": expected ", show(type_), " like ", first, ", got ",
                     show(type));
  }

  /* Determines the types of the results, which those of half precision round. */
  void choose_types(bool half) {
    if (!half) return;
    std::optional<c10::ScalarType> found;
    c10::ScalarType result = at::kFloat;
    for (size_t i = 0; i < inputs(); i++) {
      const Tensor &tensor = parameters_[i].tensor;
      if (!tensor.defined() || !is_half(tensor.scalar_type())) continue;
      TORCH_CHECK_TYPE(!found || *found == tensor.scalar_type(), caller_,
                       ": expected one type of half precision, got ", show(*found), " or ",
                       show(tensor.scalar_type()));
      found = tensor.scalar_type();
      if (op_.inputs[i].rows) result = *found;
    }
    if (values()) result_types_ = {result};
    else {
      for (size_t i = 0; i < inputs(); i++) {
        const Tensor &tensor = parameters_[i].tensor;
        result_types_.push_back(tensor.defined() ? tensor.scalar_type() : result);
      }
      result_types_.push_back(result);
    }
  }

  /* Formats a shape for a message, with the values of the known sizes. */
  std::string show_shape(const Shape &shape, uint64_t found) const {
    std::vector<std::string> axes;
    for (const Size &size : shape) {
      std::string text = size.text;
      if (!(size.names & ~found)) {
        std::string number = text_of(size.value(known_.data()));
        text = number == text ? number : text + "=" + number;
      }
      axes.push_back(text);
    }
    return tuple(axes);
  }

  void choose_forms() {
    for (size_t i = 0; i < inputs(); i++) {
      const Input &input = op_.inputs[i];
      bool is_second =
          input.form_count > 1 && !absent(i) && parameters_[i].tensor.dim() == input.forms[1].count;
      packed_ |= int64_t{is_second} << i;
      shapes_.push_back(input.forms[is_second]);
    }
    for (Parameter &p : parameters_) {
      if (p.input) p.shape = shapes_[static_cast<size_t>(p.input - op_.inputs.first)];
    }
  }

  void mismatch(const Parameter &p, const std::string &condition = "") const {
    TORCH_CHECK_VALUE(false, caller_, ": ", p.label, ": expected shape ",
                      show_shape(p.shape, found_), condition, ", got ", show(p.tensor.sizes()));
  }

  /* Equation for a size or, if `parameter` is given, for the length of an axis. */
  struct Equation {
    const Size *size;
    int name;
    const Parameter *parameter;
    int64_t axis;
  };

  std::vector<Equation> equations() const {
    std::vector<Equation> found;
    for (const Following &f : op_.following) {
      bool holds = f.option < 0 ? absent(static_cast<size_t>(f.code))
                                : options_[static_cast<size_t>(f.option)].integer == f.code;
      if (!holds) continue;
      auto same = std::find_if(found.begin(), found.end(),
                               [&](const Equation &e) { return e.name == f.name; });
      if (same != found.end()) same->size = &f.size;
      else found.push_back({&f.size, f.name, nullptr, 0});
    }
    for (size_t i = 0; i < inputs(); i++) {
      const Parameter &p = parameters_[i];
      if (!p.tensor.defined()) continue;
      if (p.tensor.dim() != p.shape.count) mismatch(p);
      for (int axis = 0; axis < p.shape.count; axis++) {
        found.push_back({&p.shape[static_cast<size_t>(axis)], -1, &p, axis});
      }
    }
    return found;
  }

  /* Solves for all sizes: each step takes the first equation with at most one unknown. */
  void solve_sizes() {
    std::vector<Equation> left = equations();
    while (!left.empty()) {
      auto next = std::find_if(left.begin(), left.end(), [&](const Equation &e) {
        uint64_t unknown = e.size->names & ~found_;
        return e.parameter ? !(unknown & (unknown - 1)) : !unknown;
      });
      TORCH_INTERNAL_ASSERT(next != left.end(), caller_, ": sizes that do not follow");
      Equation equation = *next;
      left.erase(next);
      solve(equation);
    }
  }

  void solve(const Equation &e) {
    uint64_t unknown = e.size->names & ~found_;
    if (!e.parameter) return set(e.name, e.size->value(known_.data()));
    Wide length = e.parameter->tensor.size(e.axis);
    if (!unknown) {
      if (e.size->value(known_.data()) != length) mismatch(*e.parameter);
      return;
    }
    int name = __builtin_ctzll(unknown);
    Wide &value = known_[static_cast<size_t>(name)];
    value = 0;
    Wide base = e.size->value(known_.data());
    value = 1;
    Wide slope = e.size->value(known_.data()) - base;
    const SizeName &declared = op_.sizes[static_cast<size_t>(name)];
    value = slope ? (length - base) / slope : -1;
    if (value * slope != length - base || value < declared.least) {
      mismatch(*e.parameter, condition(*e.size, declared));
    }
    found_ |= unknown;
  }

  /* Describes the known sizes of an equation that no whole number solves. */
  std::string condition(const Size &size, const SizeName &unknown) const {
    std::vector<std::string> names;
    for (size_t i = 0; i < op_.sizes.size(); i++) {
      if (size.names & found_ & uint64_t{1} << i) {
        names.push_back(std::string(op_.sizes[i].text) + "=" + text_of(known_[i]) + ", ");
      }
    }
    std::sort(names.begin(), names.end());
    std::string text = " with ";
    for (const std::string &name : names) text += name;
    return text + "a whole " + unknown.text + " >= 1";
  }

  void check_shapes() const {
    for (const Parameter &p : parameters_) {
      if (!p.tensor.defined()) continue;
      uint64_t names = 0;
      bool fits = p.tensor.dim() == p.shape.count;
      for (int64_t axis = 0; fits && axis < p.shape.count; axis++) {
        const Size &size = p.shape[static_cast<size_t>(axis)];
        names |= size.names;
        fits = size.value(known_.data()) == p.tensor.size(axis);
      }
      if (!fits) mismatch(p);
      for (const UpTo &limit : op_.at_most) check_limit(p, names, limit);
    }
    for (const Equal &sizes : op_.equal) check_equal(sizes);
  }

  void check_equal(const Equal &sizes) const {
    Wide one = known_[static_cast<size_t>(sizes.one)];
    Wide other = known_[static_cast<size_t>(sizes.other)];
    if (!options_[static_cast<size_t>(sizes.option)].integer || one == other) return;
    std::string name = op_.sizes[static_cast<size_t>(sizes.one)].text;
    std::string second = op_.sizes[static_cast<size_t>(sizes.other)].text;
    TORCH_CHECK_VALUE(false, caller_, ": ", op_.options[static_cast<size_t>(sizes.option)].name,
                      ": expected ", name, " = ", second, ", got ", name, "=", text_of(one),
                      " and ", second, "=", text_of(other));
  }

  void check_limit(const Parameter &p, uint64_t names, const UpTo &limit) const {
    uint64_t both = uint64_t{1} << limit.name | uint64_t{1} << limit.most;
    Wide value = known_[static_cast<size_t>(limit.name)];
    Wide most = known_[static_cast<size_t>(limit.most)];
    if (value <= most || (names & both) != both) return;
    std::string name = op_.sizes[static_cast<size_t>(limit.name)].text;
    std::string other = op_.sizes[static_cast<size_t>(limit.most)].text;
    TORCH_CHECK_VALUE(false, caller_, ": ", p.label, ": expected ", name, " <= ", other, ", got ",
                      name, "=", text_of(value), " and ", other, "=", text_of(most), " from shape ",
                      show(p.tensor.sizes()));
  }

  void allocate() {
    std::vector<Shape> shapes = shapes_;
    if (values()) shapes = {phase_.step == Step::FORWARD ? op_.output : op_.attention};
    else if (second()) shapes.push_back(op_.output);
    for (size_t i = 0; i < shapes.size(); i++) {
      if (!arguments_.wanted[i]) {
        outputs_.emplace_back();
        continue;
      }
      Lengths lengths;
      for (const Size &size : shapes[i]) {
        Wide length = size.value(known_.data());
        if (length > INT64_MAX) no_memory();
        lengths.push_back(static_cast<int64_t>(length));
      }
      try {
        outputs_.push_back(at::empty(lengths, at::TensorOptions().dtype(type_)));
      } catch (const c10::Error &) {
        no_memory();
      }
    }
  }

  [[noreturn]] void no_memory() const {
    raise_no_memory(caller_ + ": not enough memory for the results");
  }

  /* Returns the bits of index arrays that the kernel does not read in this call. */
  uint32_t unread() const {
    uint32_t arrays = 0;
    for (const Unread &u : op_.unread) {
      bool holds = u.input == ALWAYS || (u.input == NO_SHARED && !graph_->shared()) ||
                   (u.input >= 0 && absent(static_cast<size_t>(u.input)));
      if (holds) arrays |= u.arrays;
    }
    return arrays;
  }

  std::vector<RowNumbers> rows() {
    std::vector<RowNumbers> found;
    for (size_t i = 0; i < op_.indexed.size(); i++) {
      const Indexed &option = op_.indexed[i];
      auto given = arguments_.options[op_.options.size() + i].toOptional<Tensor>();
      std::string label = caller_ + ": " + option.name;
      bool used = options_[static_cast<size_t>(option.option)].integer == option.code;
      TORCH_CHECK_TYPE(!used || given, label, ": expected row numbers with ", option.condition,
                       ", got None");
      TORCH_CHECK_VALUE(used || !given, label, ": expected None without ", option.condition,
                        ", got a tensor");
      auto length = static_cast<int64_t>(known_[static_cast<size_t>(option.length)]);
      found.push_back(used ? graph_->rows(label, option, *given, length) : nullptr);
    }
    return found;
  }

  int64_t bits(size_t first, size_t count) const {
    int64_t found = 0;
    for (size_t i = 0; i < count; i++) {
      found |= int64_t{parameters_[first + i].tensor.defined()} << i;
    }
    return found;
  }

  void execute() {
    std::vector<RowNumbers> numbers = rows();
    uint32_t skipped = unread();
    std::vector<Slot> slots;
    for (const Source &source : phase_.arguments) {
      slots.push_back(slot(source, numbers, skipped));
    }
    check_status(caller_, kernels[phase_.kernels[type_ == at::kDouble]].run(slots.data()));
  }

  Slot slot(const Source &source, const std::vector<RowNumbers> &rows, uint32_t skipped) {
    auto i = static_cast<size_t>(source.number);
    Slot slot = {};
    auto address = [](const Tensor &tensor) {
      return tensor.defined() ? const_cast<void *>(tensor.const_data_ptr()) : nullptr;
    };
    switch (source.from) {
      case From::SIZE: slot.integer = static_cast<int64_t>(known_[i]); break;
      case From::OPTION: slot = options_[i]; break;
      case From::ROWS:
        if (rows[i]) slot.address = const_cast<int64_t *>(rows[i]->data());
        break;
      case From::INDEX:
        if (!(skipped >> i & 1)) slot.address = const_cast<void *>(graph_->index(source.number));
        break;
      case From::TENSOR: slot.address = address(parameters_[i].tensor); break;
      case From::OUTPUT: slot.address = address(outputs_[i]); break;
      case From::PACKED: slot.integer = packed_; break;
      case From::THREADS: slot.integer = team(); break;
      case From::ACCUMULATE: slot.integer = 0; break;
      case From::PRESENT: slot.integer = bits(0, inputs()); break;
      case From::GIVEN: slot.integer = bits(inputs() + 1, inputs()); break;
      case From::SHARED_EDGES: slot.integer = graph_->shared(); break;
      case From::WANTED:
        for (size_t k = 0; k < outputs_.size(); k++) {
          slot.integer |= int64_t{outputs_[k].defined()} << k;
        }
    }
    return slot;
  }

  std::vector<Tensor> results() {
    if (phase_.step == Step::ATTENTION) outputs_[0] = in_graph_order(outputs_[0]);
    std::vector<Tensor> found;
    for (size_t i = 0; i < outputs_.size(); i++) {
      if (!outputs_[i].defined()) continue;
      bool rounds = !result_types_.empty() && result_types_[i] != outputs_[i].scalar_type();
      found.push_back(rounds ? outputs_[i].to(result_types_[i]) : outputs_[i]);
    }
    return found;
  }

  Tensor in_graph_order(const Tensor &along_rows) const {
    const std::vector<int64_t> &order = graph_->order();
    Tensor ordered = at::empty_like(along_rows);
    if (order.empty()) return ordered;
    size_t row = along_rows.nbytes() / order.size();
    const auto *source = static_cast<const char *>(along_rows.const_data_ptr());
    auto *target = static_cast<char *>(ordered.mutable_data_ptr());
    for (size_t k = 0; k < order.size(); k++) {
      std::memcpy(target + static_cast<size_t>(order[k] - 1) * row, source + k * row, row);
    }
    return ordered;
  }
};

}  // namespace pyops_torch
