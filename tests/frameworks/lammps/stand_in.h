// What pair_pyops.cpp uses of LAMMPS, declared anew, so that the pair style is tested without it.
#pragma once
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#define FLERR __FILE__, __LINE__

inline int lammps_extract_setting(void *, const char *) { return sizeof(int); }

namespace LAMMPS_NS {

using tagint = int;
constexpr int NEIGHMASK = 0x1FFFFFFF;

namespace NeighConst {
enum { REQ_FULL = 1, REQ_GHOST = 2 };
}  // namespace NeighConst

struct Error {
  [[noreturn]] void all(const char *, int, const std::string &text) const {
    std::fprintf(stderr, "ERROR: %s\n", text.c_str());
    std::exit(1);
  }
  [[noreturn]] void one(const char *file, int line, const std::string &text) const {
    all(file, line, text);
  }
};

struct Memory {
  template <typename T>
  void create(T **&array, int rows, int columns, const char *) {
    array = new T *[rows];
    array[0] = new T[rows * columns]();
    for (int row = 1; row < rows; ++row) array[row] = array[0] + row * columns;
  }
  template <typename T>
  void destroy(T **array) {
    delete[] array[0];
    delete[] array;
  }
};

struct Atom {
  int nlocal = 0, nghost = 0, ntypes = 1, tag_enable = 1, molecular = 0;
  tagint *tag = nullptr;
  int *type = nullptr;
  double **x = nullptr, **f = nullptr;
};

struct Force {
  int newton_pair = 1;
  double special_lj[4] = {1, 0, 0, 0};
};

struct Comm {
  int nprocs = 1;
  double cutghostuser = 0;
};

struct Neighbor {
  double skin = 0.5;
  int flags = 0;
  void add_request(void *, int request) { flags = request; }
};

struct NeighList {
  std::vector<int> numneigh;
  std::vector<int *> firstneigh;
};

struct LAMMPS {
  const char *version = "stand-in";
  Atom *atom;
  Comm *comm;
  Error *error;
  Force *force;
  Memory *memory;
  Neighbor *neighbor;
};

enum { CENTROID_SAME = 0, CENTROID_NOTAVAIL = 2 };

class Pair {
 public:
  explicit Pair(LAMMPS *lmp)
      : atom(lmp->atom), comm(lmp->comm), error(lmp->error), force(lmp->force), memory(lmp->memory),
        neighbor(lmp->neighbor) {}
  virtual ~Pair() = default;
  virtual void settings(int, char **) = 0;
  virtual void coeff(int, char **) = 0;
  virtual void init_style() = 0;
  virtual double init_one(int, int) = 0;
  virtual void compute(int, int) = 0;

  double eng_vdwl = 0, virial[6] = {};
  double *eatom = nullptr, **vatom = nullptr;
  double **cutsq = nullptr, **cutghost = nullptr;
  int **setflag = nullptr;
  int restartinfo = 1, single_enable = 1, one_coeff = 0, manybody_flag = 0, ghostneigh = 0,
      centroidstressflag = CENTROID_SAME;
  int allocated = 0;
  int eflag_global = 0, eflag_atom = 0, vflag_atom = 0, vflag_fdotr = 0;
  NeighList *list = nullptr;

 protected:
  Atom *atom;
  Comm *comm;
  Error *error;
  Force *force;
  Memory *memory;
  Neighbor *neighbor;

  void ev_init(int eflag, int vflag) {
    eng_vdwl = 0;
    for (double &value : virial) value = 0;
    eflag_global = eflag_atom = eflag;
    vflag_atom = vflag_fdotr = vflag;
  }

  // The sum over all atoms, before forces of ghosts are added to those of their owners.
  void virial_fdotr_compute() {
    const int rows[6] = {0, 1, 2, 0, 0, 1}, columns[6] = {0, 1, 2, 1, 2, 2};
    for (int i = 0; i < atom->nlocal + atom->nghost; ++i)
      for (int place = 0; place < 6; ++place)
        virial[place] += atom->x[i][rows[place]] * atom->f[i][columns[place]];
  }
};

}    // namespace LAMMPS_NS
