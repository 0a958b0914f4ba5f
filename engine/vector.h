/* SPDX-License-Identifier: Apache-2.0 */
/* The small steps between matrix products: normalisation, softmax, rotary positions, argmax. Pure, one thread. */
#ifndef ENGINE_VECTOR_H
#define ENGINE_VECTOR_H

#include <stdint.h>

/* RMS normalisation; the mean is taken in double. ret may be x. */
void vector_rms_norm(float *ret, const float *x, const float *weight, uint32_t count, float epsilon);

/* In place, with the maximum taken off first. */
void vector_softmax(float *x, uint32_t count);

/* Clips every element to [-limit, limit]. */
void vector_clip(float *x, uint32_t count, float limit);

/* Cosines and sines of one position for one head: head_dim / 2 of each. */
void vector_rope_angles(float *ret_cos, float *ret_sin, uint32_t position, uint32_t head_dim, float theta);

/* Rotates head_count heads lying one after another; element j pairs with j + head_dim / 2 (rotate-half, as HF does). */
void vector_rope(float *x, uint32_t head_count, uint32_t head_dim, const float *cosine, const float *sine);

/* Index of the largest element, the lowest of equals. count is at least 1. */
uint32_t vector_argmax(const float *x, uint32_t count);

#endif
