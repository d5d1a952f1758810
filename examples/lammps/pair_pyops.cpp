// pair_style pyops: energies and forces of a model that pyops.models.save has written, such as
// SchNet.
//
//     plugin load pyops_pair.so
//     pair_style pyops
//     pair_coeff * * model.safetensors 29      # the atomic number of each type of atoms
//
// The model is saved with examples of `batch` and `cell`. Each local atom is a molecule of its own,
// so that there are energies of atoms, and all others are one more, whose energy is left out. Atoms
// that are within the reach of the layers, several times the cutoff, are nodes of the graph. Copies
// of an atom, which periodic images and other ranks have, are one node; edges keep the copies.
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <unordered_map>
#include <vector>

#include <pyops.h>

#include "atom.h"
#include "comm.h"
#include "error.h"
#include "force.h"
#include "library.h"
#include "memory.h"
#include "neigh_list.h"
#include "neighbor.h"
#include "pair.h"

using namespace LAMMPS_NS;

namespace {

// Inputs of the model: nodes, and edges from neighbours to the atoms that see them.
struct Graph {
  std::vector<int64_t> src, dst, z, batch;
  std::vector<double> offsets, pos;
};

class PairPyops : public Pair {
 public:
  explicit PairPyops(LAMMPS *lmp) : Pair(lmp), model(pyops_model_new()) {
    if (lammps_extract_setting(nullptr, "tagint") != sizeof(tagint))
      error->all(FLERR, "pair_style pyops: expected the options with which LAMMPS was compiled");
    if (!model) error->all(FLERR, "pair_style pyops: expected memory for a model, got none");
    restartinfo = 0;
    single_enable = 0;
    one_coeff = 1;
    manybody_flag = 1;
    ghostneigh = 1;
    centroidstressflag = CENTROID_NOTAVAIL;
  }

  ~PairPyops() override {
    pyops_model_free(model);
    if (!allocated) return;
    memory->destroy(setflag);
    memory->destroy(cutsq);
    memory->destroy(cutghost);
  }

  void settings(int count, char **) override {
    if (count > 0) error->all(FLERR, "pair_style pyops: expected no arguments");
  }

  void coeff(int count, char **words) override {
    const int types = atom->ntypes;
    if (count != types + 3 || std::string(words[0]) != "*" || std::string(words[1]) != "*")
      error->all(FLERR, "pair_coeff: expected * *, a file and an atomic number for each type");
    numbers.assign(1, 0);
    for (int type = 0; type < types; ++type) {
      char *end;
      numbers.push_back(std::strtol(words[3 + type], &end, 10));
      if (*end || numbers.back() < 1)
        error->all(FLERR,
                   std::string("pair_coeff: expected an atomic number, got ") + words[3 + type]);
    }
    check(pyops_model_load(model, words[2], 8));
    check(pyops_model_number(model, "cutoff", &cutoff));
    if (!(cutoff > 0 && cutoff < 1e6)) error->all(FLERR, "pair_coeff: expected a positive cutoff");
    layers = count_layers();
    check_sum(numbers[1]);
    if (!allocated) allocate();
    for (int i = 1; i <= types; ++i)
      for (int j = i; j <= types; ++j) setflag[i][j] = 1;
  }

  void init_style() override {
    if (!atom->tag_enable) error->all(FLERR, "pair_style pyops: expected atoms with ids");
    if (!force->newton_pair) error->all(FLERR, "pair_style pyops: expected newton on");
    for (int order = 1; order < 4 && atom->molecular; ++order)
      if (force->special_lj[order] != 1.0)
        error->all(FLERR, "pair_style pyops: expected special_bonds lj/coul 1 1 1");
    if (comm->nprocs > 1 && layers == 0)
      error->all(FLERR,
                 "pair_style pyops: expected a hyperparameter num_interactions or num_blocks "
                 "in the file, as the reach of the layers determines the atoms of a rank");
    const double reach = (comm->nprocs > 1 ? layers : 1) * cutoff + neighbor->skin;
    if (comm->cutghostuser < reach) comm->cutghostuser = reach;
    neighbor->add_request(this, NeighConst::REQ_FULL | NeighConst::REQ_GHOST);
  }

  double init_one(int i, int j) override {
    cutghost[i][j] = cutghost[j][i] = cutoff;
    return cutoff;
  }

  void compute(int eflag, int vflag) override {
    ev_init(eflag, vflag);
    const int own = atom->nlocal;
    if (own == 0) return;
    find_edges();
    apply();
    std::vector<double> energies(shape(own), 0.0), cotangent(energies.size(), 0.0);
    check(pyops_model_get_r8(model, "output:0", energies.data()));
    for (int i = 0; i < own; ++i) cotangent[i] = 1.0;
    check(pyops_model_backward_r8(model, cotangent.data()));
    std::vector<double> slopes(graph.offsets.size());
    check(pyops_model_gradient_r8(model, "offsets", slopes.data()));
    for (int i = 0; i < own; ++i) {
      if (eflag_global) eng_vdwl += energies[i];
      if (eflag_atom) eatom[i] += energies[i];
    }
    for (size_t e = 0; e < graph.src.size(); ++e) add_force(centres[e], others[e], &slopes[3 * e]);
    if (vflag_fdotr) virial_fdotr_compute();
  }

 private:
  void *model;
  std::vector<int64_t> numbers;  // by type, from 1
  double cutoff = 0;
  int layers = 0;  // sums over neighbours, one after the other; 0 if not known
  Graph graph;
  std::vector<int> centres, others;  // atoms that an edge joins, as they are stored

  void check(int32_t status) {
    if (status == 0) return;
    char text[500];
    pyops_model_message(model, sizeof text, text);
    error->one(FLERR, std::string("pair_style pyops: ") + text);
  }

  void allocate() {
    const int size = atom->ntypes + 1;
    memory->create(setflag, size, size, "pair:setflag");
    memory->create(cutsq, size, size, "pair:cutsq");
    memory->create(cutghost, size, size, "pair:cutghost");
    allocated = 1;
  }

  int count_layers() {
    double count;
    int more = 0;
    if (pyops_model_number(model, "num_interactions", &count) != 0) {
      more = 1;
      if (pyops_model_number(model, "num_blocks", &count) != 0) return 0;
    }
    if (!(count >= 1 && count <= 1000 && count == std::floor(count)))
      error->all(FLERR, "pair_coeff: expected 1 to 1000 layers in the file");
    return int(count) + more;
  }

  void apply() {
    const int64_t nodes = graph.z.size(), edges = graph.src.size();
    check(pyops_model_set_graph(model, "graph", nodes, nodes, edges, graph.src.data(),
                                graph.dst.data()));
    check(pyops_model_set_real_r8(model, "offsets", edges, 3, graph.offsets.data()));
    check(pyops_model_set_index(model, "z", nodes, graph.z.data()));
    check(pyops_model_set_real_r8(model, "pos", nodes, 3, graph.pos.data()));
    check(pyops_model_set_index(model, "batch", nodes, graph.batch.data()));
    check(pyops_model_apply(model));
  }

  // Returns the number of energies, of which there is at least one for each local atom.
  int64_t shape(int64_t own) {
    int64_t rows, columns;
    check(pyops_model_shape(model, "output:0", &rows, &columns));
    if (columns != 1 || rows < own)
      error->one(FLERR, "pair_style pyops: expected a model with one energy for each molecule");
    return rows;
  }

  // Refuses models whose energy is no sum over atoms, such as a mean.
  void check_sum(int64_t z) {
    double totals[2] = {0.0, 0.0};
    for (int molecules = 1; molecules <= 2; ++molecules) {
      graph = {{0, 1},
               {1, 0},
               {z, z},
               {0, molecules - 1},
               {0, 0, 0, 0, 0, 0},
               {0, 0, 0, 0.5 * cutoff, 0, 0}};
      apply();
      std::vector<double> energies(shape(molecules));
      check(pyops_model_get_r8(model, "output:0", energies.data()));
      for (double energy : energies) totals[molecules - 1] += energy;
    }
    if (!(std::fabs(totals[1] - totals[0]) <= 1e-6 * (1.0 + std::fabs(totals[0]))))
      error->all(FLERR, "pair_style pyops: expected a model whose energy is a sum over atoms");
  }

  // Adds nodes and edges in order of their distance from local atoms, counted in edges, so that of
  // the copies of an atom the node is one with all neighbours that its layers see.
  void find_edges() {
    double **x = atom->x;
    const int own = atom->nlocal;
    std::vector<int> copies;  // the stored atom of each node
    std::unordered_map<tagint, int64_t> nodes;
    graph = Graph();
    centres.clear();
    others.clear();
    for (int i = 0; i < own; ++i) {
      nodes[atom->tag[i]] = i;
      copies.push_back(i);
    }
    size_t begin = 0;
    for (int hop = 0; begin < copies.size() && (layers == 0 || hop < layers); ++hop) {
      const size_t end = copies.size();
      for (; begin < end; ++begin) {
        const int i = copies[begin];
        for (int k = 0; k < list->numneigh[i]; ++k) {
          const int j = list->firstneigh[i][k] & NEIGHMASK;
          const double d[3] = {x[j][0] - x[i][0], x[j][1] - x[i][1], x[j][2] - x[i][2]};
          if (d[0] * d[0] + d[1] * d[1] + d[2] * d[2] > cutoff * cutoff) continue;
          const auto found = nodes.emplace(atom->tag[j], copies.size());
          if (found.second) copies.push_back(j);
          const int64_t node = found.first->second;
          graph.src.push_back(node);
          graph.dst.push_back(begin);
          for (int axis = 0; axis < 3; ++axis)
            graph.offsets.push_back(x[j][axis] - x[copies[node]][axis]);
          centres.push_back(i);
          others.push_back(j);
        }
      }
    }
    for (size_t node = 0; node < copies.size(); ++node) {
      const int i = copies[node];
      graph.z.push_back(numbers[atom->type[i]]);
      graph.batch.push_back(i < own ? i : own);
      graph.pos.insert(graph.pos.end(), x[i], x[i] + 3);
    }
  }

  // Adds the forces of an edge whose vector, from i to j, the energy has this slope by.
  void add_force(int i, int j, const double *slope) {
    double **x = atom->x, **f = atom->f;
    double d[3];
    for (int axis = 0; axis < 3; ++axis) {
      f[i][axis] += slope[axis];
      f[j][axis] -= slope[axis];
      d[axis] = x[j][axis] - x[i][axis];
    }
    if (!vflag_atom) return;
    const int rows[6] = {0, 1, 2, 0, 0, 1}, columns[6] = {0, 1, 2, 1, 2, 2};
    for (int place = 0; place < 6; ++place)
      for (int one : {i, j}) vatom[one][place] -= 0.5 * d[rows[place]] * slope[columns[place]];
  }
};

Pair *create(LAMMPS *lmp) { return new PairPyops(lmp); }

// The interface of LAMMPS's plug-ins, whose header is not installed with it.
struct Plugin {
  const char *version, *style, *name, *info, *author;
  Pair *(*creator)(LAMMPS *);
  void *handle;
};

}  // namespace

extern "C" void lammpsplugin_init(void *lmp, void *handle, void *function) {
  Plugin plugin = {static_cast<LAMMPS *>(lmp)->version,
                   "pair",
                   "pyops",
                   "models that pyops.models.save has written",
                   "the developers of pyops",
                   create,
                   handle};
  reinterpret_cast<void (*)(Plugin *, void *)>(function)(&plugin, lmp);
}
