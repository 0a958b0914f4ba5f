/* SPDX-License-Identifier: Apache-2.0 */
/*
 * libFuzzer: any bytes as a binary trace. A header that is taken is what record.h promises; what was read, header or
 * record, is written as the same bytes, for each value has one form.
 */
#include "base/check.h"
#include "policy/record.h"

#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_header(const struct record_header *header, const uint8_t *data, long read)
{
	uint64_t objects = 0, all_bytes = 0;
	unsigned char *bytes;
	size_t written;

	for (uint32_t i = 0; i < header->layer_count; i++) {
		objects += header->layer[i].experts;
		CNRE_CHECK(!__builtin_add_overflow(all_bytes, header->layer[i].experts * header->layer[i].resident_bytes,
						   &all_bytes));
	}
	CNRE_CHECK(objects > 0 && objects <= RECORD_OBJECTS_MAX && all_bytes >= objects);
	CNRE_CHECK(memchr(header->policy, 0, sizeof header->policy) != NULL);
	for (uint32_t i = 0; i < header->resident_count; i++)
		CNRE_CHECK(header->resident[i] < objects);
	CNRE_CHECK(record_put_header(header, &bytes, &written) == 0);
	CNRE_CHECK(written == (size_t)read && memcmp(bytes, data, written) == 0);
	free(bytes);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct record_header header;
	struct record record;
	long read = record_get_header(data, size, &header);
	size_t at = 0;

	CNRE_CHECK(read >= 0 ? (size_t)read <= size : read == -EBADMSG);
	if (read > 0) {
		check_header(&header, data, read);
		record_free_header(&header);
		at = (size_t)read;
	}
	for (;; at += (size_t)read) {
		unsigned char bytes[RECORD_BYTES_MAX];

		read = record_get(data + at, size - at, &record);
		CNRE_CHECK(read >= 0 ? (size_t)read <= size - at : read == -EBADMSG);
		if (read <= 0)
			return 0;
		CNRE_CHECK(record_put(bytes, &record) == (size_t)read && memcmp(bytes, data + at, (size_t)read) == 0);
	}
}
