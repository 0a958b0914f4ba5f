/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/cuda_numbers.h"

#include "gpu/cuda_api.h"

const struct cuda_number *cuda_numbers_of_toolkit(size_t *ret_count)
{
#ifdef CNRE_CUDA_API_OF_TOOLKIT
	static const struct cuda_number numbers[] = CUDA_NUMBER_LIST;
	*ret_count = sizeof numbers / sizeof *numbers;
	return numbers;
#else
	*ret_count = 0;
	return NULL;
#endif
}
