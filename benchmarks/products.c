/* One product, C = A B or C += A B, `repeats` times over by the procedures of one library. Sums of
   more than `deep` terms are C += A B, that many terms at a time; the tile sees to that itself. */

struct product {
  long m, n, k, deep, ldb; /* A is m x k, B is k x n; all stand column by column, */
  const char *transb;      /* but B by rows where this is T */
  long lanes, bytes;       /* rows of a panel, bytes of a number */
  int add;
  const char *a, *b, *b_panels, *one, *beta;
  char *a_panels, *c;
};

typedef void tile_multiply(const long *depth, const long *count, const long *sa, const char *a,
                           const long *lead, const char *b, const long *columns, const long *cj,
                           const long *sc, char *c, const int *add);
typedef void tile_outer(const long *depth, const long *count, const long *sa, const char *a,
                        const char *b, const long *columns, const long *cj, const long *sc, char *c,
                        const int *add);
typedef void pack_panels(const long *rows, const long *first_depth, const long *second_depth,
                         const long *stride, const char *source, char *packed);
typedef void gemm(const char *transa, const char *transb, const long *m, const long *n,
                  const long *k, const char *alpha, const char *a, const long *lda, const char *b,
                  const long *ldb, const char *beta, char *c, const long *ldc, long, long);
typedef void jit(const char *a, const char *b, char *c);

static long least(long i, long j) { return i < j ? i : j; }

static void multiply(const struct product *p, tile_multiply *call) {
  long panels = p->m / p->lanes, apart = p->k * p->lanes;
  call(&p->k, &panels, &apart, p->a_panels, &p->ldb, p->b, &p->n, &p->m, &p->lanes, p->c, &p->add);
}

void run_tile(const struct product *p, void **procedures, long repeats) {
  while (repeats--) multiply(p, procedures[0]);
}

void run_packing(const struct product *p, void **procedures, long repeats) {
  pack_panels *pack = procedures[1];
  long one = 1, stride[] = {1, p->m, 0};
  while (repeats--) {
    pack(&p->m, &p->k, &one, stride, p->a, p->a_panels);
    multiply(p, procedures[0]);
  }
}

void run_outer(const struct product *p, void **procedures, long repeats) {
  tile_outer *call = procedures[0];
  long panels = p->m / p->lanes, apart = p->k * p->lanes;
  while (repeats--)
    call(&p->k, &panels, &apart, p->a_panels, p->b_panels, &p->n, &p->m, &p->lanes, p->c, &p->add);
}

void run_gemm(const struct product *p, void **procedures, long repeats) {
  gemm *call = procedures[0];
  while (repeats--)
    for (long q = 0; q < p->k; q += p->deep) {
      long depth = least(p->deep, p->k - q);
      call("N", p->transb, &p->m, &p->n, &depth, p->one, p->a + q * p->m * p->bytes, &p->m,
           p->b + q * p->bytes, &p->ldb, p->beta, p->c, &p->m, 1, 1);
    }
}

/* The second procedure is for what is left of the sum. */
void run_jit(const struct product *p, void **procedures, long repeats) {
  while (repeats--)
    for (long q = 0; q < p->k; q += p->deep) {
      jit *call = procedures[p->k - q < p->deep];
      call(p->a + q * p->m * p->bytes, p->b + q * p->bytes, p->c);
    }
}
