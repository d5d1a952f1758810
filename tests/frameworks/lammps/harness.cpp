// Runs pair_style pyops on atoms of a periodic box that is cut into slabs, one for each rank:
// harness SLABS NEWTON MOLECULAR WORDS... < ATOMS, with the words after pair_coeff. Reads the
// lengths of the box and the positions; prints energy, virial, and energy, force and virial of each
// atom.
#include <cmath>
#include <cstring>
#include <iostream>

#include "pair.h"

using namespace LAMMPS_NS;

extern "C" void lammpsplugin_init(void *, void *, void *);

namespace {

struct Plugin {
  const char *version, *style, *name, *info, *author;
  Pair *(*creator)(LAMMPS *);
  void *handle;
};

Pair *pair;

void take(Plugin *plugin, void *lmp) {
  if (std::strcmp(plugin->style, "pair") || std::strcmp(plugin->name, "pyops")) std::exit(2);
  pair = plugin->creator(static_cast<LAMMPS *>(lmp));
}

using Point = std::vector<double>;

// Atoms of a slab and images of all within the reach, with arrays of pointers as LAMMPS has them.
struct Slab {
  std::vector<Point> points, forces;
  std::vector<int> tags;
  int own = 0;

  Slab(const std::vector<Point> &all, const Point &box, int place, int slabs, double reach) {
    const double width = box[0] / slabs, left = place * width;
    for (size_t i = 0; i < all.size(); ++i)
      if (all[i][0] >= left && all[i][0] < left + width) add(all[i], i + 1);
    own = points.size();
    int images[3];
    for (int axis = 0; axis < 3; ++axis) images[axis] = int(std::ceil(reach / box[axis]));
    for (int a = -images[0]; a <= images[0]; ++a)
      for (int b = -images[1]; b <= images[1]; ++b)
        for (int c = -images[2]; c <= images[2]; ++c)
          for (size_t i = 0; i < all.size(); ++i) {
            const Point x = {all[i][0] + a * box[0], all[i][1] + b * box[1],
                             all[i][2] + c * box[2]};
            const bool inside = x[0] >= left - reach && x[0] < left + width + reach &&
                                x[1] >= -reach && x[1] < box[1] + reach && x[2] >= -reach &&
                                x[2] < box[2] + reach;
            const bool local = !a && !b && !c && x[0] >= left && x[0] < left + width;
            if (inside && !local) add(x, i + 1);
          }
    forces.assign(points.size(), Point(3, 0.0));
  }

  void add(const Point &x, int tag) {
    points.push_back(x);
    tags.push_back(tag);
  }
};

double distance(const Point &a, const Point &b) {
  return std::hypot(a[0] - b[0], a[1] - b[1], a[2] - b[2]);
}

std::vector<double *> pointers(std::vector<Point> &rows) {
  std::vector<double *> found;
  for (Point &row : rows) found.push_back(row.data());
  return found;
}

}  // namespace

int main(int count, char **words) {
  Atom atom;
  Comm comm;
  Error error;
  Force force;
  Memory memory;
  Neighbor neighbor;
  LAMMPS lmp;
  lmp.atom = &atom;
  lmp.comm = &comm;
  lmp.error = &error;
  lmp.force = &force;
  lmp.memory = &memory;
  lmp.neighbor = &neighbor;
  const int slabs = std::atoi(words[1]);
  comm.nprocs = slabs;
  force.newton_pair = std::atoi(words[2]);
  atom.molecular = std::atoi(words[3]);
  lammpsplugin_init(&lmp, nullptr, reinterpret_cast<void *>(take));
  pair->settings(0, nullptr);
  pair->coeff(count - 4, words + 4);
  pair->init_style();
  const double cutoff = pair->init_one(1, 1) + neighbor.skin;
  if (neighbor.flags != (NeighConst::REQ_FULL | NeighConst::REQ_GHOST)) return 3;

  Point box(3);
  std::cin >> box[0] >> box[1] >> box[2];
  std::vector<Point> all;
  for (Point x(3); std::cin >> x[0] >> x[1] >> x[2];) all.push_back(x);
  std::vector<Point> sums(all.size(), Point(10, 0.0));
  double energy = 0, virial[6] = {};
  for (int place = 0; place < slabs; ++place) {
    Slab slab(all, box, place, slabs, comm.cutghostuser);
    const int size = slab.points.size();
    std::vector<double> energies(size, 0.0);
    std::vector<Point> virials(size, Point(6, 0.0));
    std::vector<std::vector<int>> near(size);
    NeighList list;
    for (int i = 0; i < size; ++i) {
      for (int j = 0; j < size; ++j)
        if (i != j && distance(slab.points[i], slab.points[j]) <= cutoff)
          near[i].push_back(j | 1 << 30);  // the bits of special neighbours
      list.numneigh.push_back(near[i].size());
      list.firstneigh.push_back(near[i].data());
    }
    std::vector<double *> x = pointers(slab.points), f = pointers(slab.forces);
    std::vector<double *> v = pointers(virials);
    std::vector<int> types(size, 1);
    atom.nlocal = slab.own;
    atom.nghost = size - slab.own;
    atom.tag = slab.tags.data();
    atom.type = types.data();
    atom.x = x.data();
    atom.f = f.data();
    pair->eatom = energies.data();
    pair->vatom = v.data();
    pair->list = &list;
    pair->compute(1, 1);
    energy += pair->eng_vdwl;
    for (int k = 0; k < 6; ++k) virial[k] += pair->virial[k];
    for (int i = 0; i < size; ++i) {  // reverse communication
      Point &sum = sums[slab.tags[i] - 1];
      sum[0] += energies[i];
      for (int k = 0; k < 3; ++k) sum[1 + k] += f[i][k];
      for (int k = 0; k < 6; ++k) sum[4 + k] += v[i][k];
    }
  }
  delete pair;
  std::cout.precision(17);
  std::cout << energy;
  for (double value : virial) std::cout << ' ' << value;
  for (const Point &sum : sums)
    for (int k = 0; k < 10; ++k) std::cout << (k ? ' ' : '\n') << sum[k];
  std::cout << '\n';
}
