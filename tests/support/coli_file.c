/* SPDX-License-Identifier: Apache-2.0 */
/* See coli_file.h. */
#include "tests/support/coli_file.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

uint64_t coli_file_record_bytes(const struct coli_file *file)
{
	return 4 * (1 + (uint64_t)file->layers * (uint64_t)(file->kv_lora + file->qk_rope) +
		    (uint64_t)file->index_layers * (uint64_t)file->index_dim);
}

int32_t coli_file_token(uint32_t record)
{
	return (int32_t)(record * 7 % 50);
}

/* Whole numbers below 2^24: exact as floats, and no two alike within a test's dimensions. */
float coli_file_value(uint32_t record, int is_index, uint32_t layer, uint32_t column)
{
	return (float)(((record * 2 + (uint32_t)(is_index != 0)) * 8 + layer) * 16 + column);
}

static void put_rows(FILE *out, uint32_t record, int is_index, uint32_t layers, uint32_t columns)
{
	for (uint32_t layer = 0; layer < layers; layer++)
		for (uint32_t column = 0; column < columns; column++) {
			float value = coli_file_value(record, is_index, layer, column);

			(void)fwrite(&value, sizeof value, 1, out);
		}
}

static void put_records(FILE *out, const struct coli_file *file)
{
	for (uint32_t i = 0; i <= file->present; i++) {
		int32_t token = coli_file_token(i);

		(void)fwrite(&token, sizeof token, 1, out);
		put_rows(out, i, 0, (uint32_t)file->layers, (uint32_t)(file->kv_lora + file->qk_rope));
		put_rows(out, i, 1, (uint32_t)file->index_layers, (uint32_t)file->index_dim);
	}
}

int coli_file_write(const struct coli_file *file, int fd)
{
	const int32_t header[8] = {file->layers,       file->kv_lora,    file->qk_rope,  file->index_dim,
				   file->index_layers, file->vocabulary, file->promised, 0};
	uint64_t bytes = COLI_FILE_HEADER_BYTES + file->present * coli_file_record_bytes(file) + file->torn_bytes;
	char *text = NULL;
	size_t written = 0;
	FILE *out = open_memstream(&text, &written);
	int r;

	if (out == NULL)
		return -ENOMEM;
	(void)fwrite("COLIKV1", 8, 1, out);
	(void)fwrite(header, sizeof header, 1, out);
	put_records(out, file); /* one more than whole: what is torn of it is cut off */
	(void)fclose(out);
	r = written >= bytes && write(fd, text, bytes) == (ssize_t)bytes ? 0 : -EIO;
	free(text);
	return r;
}
