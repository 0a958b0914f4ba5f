/* SPDX-License-Identifier: Apache-2.0 */
/* Functions of + - * / alone; see sample.h. */
#include "tools/sim/sample.h"

#include <string.h>

#define LN2_HIGH 0.693147180369123816490 /* its last bits are zero: times a small whole number it is exact */
#define LN2_LOW 1.90821492927058770002e-10

static double of_bits(uint64_t bits)
{
	double value;

	memcpy(&value, &bits, sizeof value);
	return value;
}

static uint64_t bits_of(double value)
{
	uint64_t bits;

	memcpy(&bits, &value, sizeof bits);
	return bits;
}

/* x = m * 2^e with m within a factor of sqrt 2 of 1; log m = 2 atanh((m-1)/(m+1)), whose series ends soon there. */
double sim_log(double x)
{
	uint64_t bits = bits_of(x);
	int exponent = (int)(bits >> 52) - 1023, i;
	double m = of_bits((bits & 0xfffffffffffffull) | 0x3ff0000000000000ull), s, square, sum = 0;

	if (m > 1.4142135623730951) {
		m *= 0.5;
		exponent++;
	}
	s = (m - 1) / (m + 1);
	square = s * s;
	for (i = 25; i >= 1; i -= 2)
		sum = sum * square + 1.0 / i;
	return exponent * LN2_HIGH + (exponent * LN2_LOW + 2 * s * sum);
}

double sim_exp(double x)
{
	double scaled = x / (LN2_HIGH + LN2_LOW), r, sum = 1;
	int k = (int)(scaled < 0 ? scaled - 0.5 : scaled + 0.5), i;

	r = (x - k * LN2_HIGH) - k * LN2_LOW;
	for (i = 18; i >= 1; i--)
		sum = 1 + sum * r / i;
	return sum * of_bits((uint64_t)(1023 + k) << 52);
}

/* Newton's iteration from half the exponent. */
double sim_sqrt(double x)
{
	double root;
	int i;

	if (x <= 0)
		return 0;
	root = of_bits((bits_of(x) >> 1) + (1023ull << 51));
	for (i = 0; i < 6; i++)
		root = 0.5 * (root + x / root);
	return root;
}

static double ratio(const double a[8], const double b[8], double r)
{
	double above = a[7], below = b[7];
	int i;

	for (i = 6; i >= 0; i--) {
		above = above * r + a[i];
		below = below * r + b[i];
	}
	return above / below;
}

/* Wichura, Algorithm AS 241 (Applied Statistics 37, 1988), the routine of 16 digits. */
double sim_normal_quantile(double p)
{
	static const double middle_a[8] = {3.3871328727963666080e0,  1.3314166789178437745e+2, 1.9715909503065514427e+3,
					   1.3731693765509461125e+4, 4.5921953931549871457e+4, 6.7265770927008700853e+4,
					   3.3430575583588128105e+4, 2.5090809287301226727e+3};
	static const double middle_b[8] = {1.0,
					   4.2313330701600911252e+1,
					   6.8718700749205790830e+2,
					   5.3941960214247511077e+3,
					   2.1213794301586595867e+4,
					   3.9307895800092710610e+4,
					   2.8729085735721942674e+4,
					   5.2264952788528545610e+3};
	static const double near_a[8] = {1.42343711074968357734e0,  4.63033784615654529590e0, 5.76949722146069140550e0,
					 3.64784832476320460504e0,  1.27045825245236838258e0, 2.41780725177450611770e-1,
					 2.27238449892691845833e-2, 7.74545014278341407640e-4};
	static const double near_b[8] = {1.0,
					 2.05319162663775882187e0,
					 1.67638483018380384940e0,
					 6.89767334985100004550e-1,
					 1.48103976427480074590e-1,
					 1.51986665636164571966e-2,
					 5.47593808499534494600e-4,
					 1.05075007164441684324e-9};
	static const double far_a[8] = {6.65790464350110377720e0,  5.46378491116411436990e0,  1.78482653991729133580e0,
					2.96560571828504891230e-1, 2.65321895265761230930e-2, 1.24266094738807843860e-3,
					2.71155556874348757815e-5, 2.01033439929228813265e-7};
	static const double far_b[8] = {1.0,
					5.99832206555887937690e-1,
					1.36929880922735805310e-1,
					1.48753612908506148525e-2,
					7.86869131145613259100e-4,
					1.84631831751005468180e-5,
					1.42151175831644588870e-7,
					2.04426310338993978564e-15};
	double q = p - 0.5, r;

	if (q >= -0.425 && q <= 0.425)
		return q * ratio(middle_a, middle_b, 0.180625 - q * q);
	r = sim_sqrt(-sim_log(q < 0 ? p : 1 - p));
	r = r <= 5 ? ratio(near_a, near_b, r - 1.6) : ratio(far_a, far_b, r - 5);
	return q < 0 ? -r : r;
}
