// Functions of sixteen values at once.
#pragma once

#include <immintrin.h>

namespace headpond {

// e to the x, to about one unit in the last place. Source: the range reduction of Cephes' expf,
// x = n ln 2 + r, with a polynomial for e to the r.
inline __m512 exp_ps(__m512 x) {
  x = _mm512_max_ps(x, _mm512_set1_ps(-100.0f));
  const __m512 n = _mm512_roundscale_ps(_mm512_mul_ps(x, _mm512_set1_ps(1.44269504f)), 0);
  __m512 r = _mm512_fnmadd_ps(n, _mm512_set1_ps(0.693359375f), x);
  r = _mm512_fnmadd_ps(n, _mm512_set1_ps(-2.12194440e-4f), r);
  __m512 p = _mm512_set1_ps(1.9875691500e-4f);
  for (const float c : {1.3981999507e-3f, 8.3334519073e-3f, 4.1665795894e-2f, 1.6666665459e-1f,
                        5.0000001201e-1f})
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(c));
  p = _mm512_fmadd_ps(p, _mm512_mul_ps(r, r), _mm512_add_ps(r, _mm512_set1_ps(1.0f)));
  return _mm512_scalef_ps(p, n);
}

// 2 to the x, to about two units in the last place; 0 far below. Source: the same, with the
// series of 2 to the r to its seventh term.
inline __m512 exp2_ps(__m512 x) {
  x = _mm512_max_ps(_mm512_set1_ps(-200.0f), x);  // in this order NaN stays
  const __m512 n = _mm512_roundscale_ps(x, 0), r = _mm512_sub_ps(x, n);
  __m512 p = _mm512_set1_ps(1.54035304e-4f);
  for (const float c : {1.33335581e-3f, 9.61812911e-3f, 5.55041087e-2f, 2.40226507e-1f,
                        6.93147181e-1f, 1.0f})
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(c));
  return _mm512_scalef_ps(p, n);
}

// x times the share of the normal distribution below x. Source: Abramowitz and Stegun 7.1.26
// for the tail above |x|, to 1e-7.
inline __m512 gelu_ps(__m512 x) {
  const __m512 one = _mm512_set1_ps(1.0f), size = _mm512_abs_ps(x);
  const __m512 t = _mm512_div_ps(
      one, _mm512_fmadd_ps(size, _mm512_set1_ps(0.3275911f * 0.70710678f), one));
  __m512 p = _mm512_set1_ps(0.5f * 1.061405429f);
  for (const float c : {0.5f * -1.453152027f, 0.5f * 1.421413741f, 0.5f * -0.284496736f,
                        0.5f * 0.254829592f})
    p = _mm512_fmadd_ps(p, t, _mm512_set1_ps(c));
  const __m512 density = exp_ps(_mm512_mul_ps(_mm512_mul_ps(x, x), _mm512_set1_ps(-0.5f)));
  const __m512 tail = _mm512_mul_ps(_mm512_mul_ps(p, t), density);
  return _mm512_fnmadd_ps(size, tail, _mm512_max_ps(x, _mm512_setzero_ps()));
}

}  // namespace headpond
