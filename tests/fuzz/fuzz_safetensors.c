/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A shard from a stranger: any bytes as a whole safetensors file. What is accepted must be what safetensors.h promises:
 * tensors in order that tile the data area, names that end where they say.
 */
#include "model/safetensors.h"

#include "base/check.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count);

static void check_promises(const struct safetensors *file, uint64_t data_bytes)
{
	const struct safetensors_tensor *tensor;
	uint64_t expected = 0;
	uint32_t i, k;

	for (i = 0; i < file->tensor_count; i++) {
		tensor = &file->tensor[i];
		CNRE_CHECK(tensor->begin == expected && tensor->end >= tensor->begin);
		CNRE_CHECK(tensor->rank <= SAFETENSORS_RANK_MAX);
		CNRE_CHECK(strlen(safetensors_name(file, tensor)) == tensor->name_bytes);
		for (k = 0; k < tensor->rank; k++)
			CNRE_CHECK(safetensors_dimensions(file, tensor)[k] != 0 || tensor->end == tensor->begin);
		expected = tensor->end;
	}
	CNRE_CHECK(expected == data_bytes);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count)
{
	char message[SAFETENSORS_MESSAGE_BYTES] = "";
	struct safetensors *file = NULL;
	uint64_t header_bytes = 0, data_bytes;
	unsigned i;
	char *text;
	int result;

	if (count < 8)
		return -1;
	for (i = 0; i < 8; i++)
		header_bytes |= (uint64_t)bytes[i] << 8 * i;
	if (header_bytes > count - 8)
		header_bytes = count - 8; /* safetensors_open refuses it; here the text is worth more */
	data_bytes = count - 8 - header_bytes;
	text = malloc(header_bytes + 1);
	CNRE_CHECK(text != NULL);
	memcpy(text, bytes + 8, header_bytes);
	text[header_bytes] = '\0';
	result = safetensors_parse(&file, text, header_bytes, data_bytes, "fuzz", message);
	CNRE_CHECK(result == 0 ? file != NULL : file == NULL && message[0] != '\0');
	if (file != NULL)
		check_promises(file, data_bytes);
	(void)safetensors_close(file);
	return 0;
}
