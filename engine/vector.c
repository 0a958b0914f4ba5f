/* SPDX-License-Identifier: Apache-2.0 */
/* See vector.h. Elementwise work on a few thousand numbers a layer: not worth a kernel of its own. */
#include "engine/vector.h"

#include <math.h>
#include <stddef.h>

void vector_rms_norm(float *ret, const float *x, const float *weight, uint32_t count, float epsilon)
{
	double squares = 0;
	float factor;

	for (uint32_t i = 0; i < count; i++)
		squares += (double)x[i] * x[i];
	factor = 1.0f / sqrtf((float)(squares / count) + epsilon);
	for (uint32_t i = 0; i < count; i++)
		ret[i] = x[i] * factor * weight[i];
}

void vector_softmax(float *x, uint32_t count)
{
	float largest = -INFINITY, sum = 0;

	for (uint32_t i = 0; i < count; i++)
		largest = x[i] > largest ? x[i] : largest;
	for (uint32_t i = 0; i < count; i++) {
		x[i] = expf(x[i] - largest);
		sum += x[i];
	}
	for (uint32_t i = 0; i < count; i++)
		x[i] /= sum;
}

void vector_clip(float *x, uint32_t count, float limit)
{
	for (uint32_t i = 0; i < count; i++)
		x[i] = x[i] > limit ? limit : x[i] < -limit ? -limit : x[i];
}

void vector_rope_angles(float *ret_cos, float *ret_sin, uint32_t position, uint32_t head_dim, float theta)
{
	for (uint32_t j = 0; j < head_dim / 2; j++) {
		float angle = (float)position * powf(theta, -2.0f * (float)j / (float)head_dim);

		ret_cos[j] = cosf(angle);
		ret_sin[j] = sinf(angle);
	}
}

void vector_rope(float *x, uint32_t head_count, uint32_t head_dim, const float *cosine, const float *sine)
{
	const uint32_t half = head_dim / 2;

	for (uint32_t head = 0; head < head_count; head++) {
		float *low = x + (size_t)head * head_dim, *high = low + half;

		for (uint32_t j = 0; j < half; j++) {
			float a = low[j], b = high[j];

			low[j] = a * cosine[j] - b * sine[j];
			high[j] = b * cosine[j] + a * sine[j];
		}
	}
}

uint32_t vector_argmax(const float *x, uint32_t count)
{
	uint32_t best = 0;

	for (uint32_t i = 1; i < count; i++)
		if (x[i] > x[best])
			best = i;
	return best;
}
