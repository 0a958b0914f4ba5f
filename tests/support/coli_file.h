/* SPDX-License-Identifier: Apache-2.0 */
/* A `.coli_kv` as Colibri's GLM engine writes it, with rows that say where they belong. */
#ifndef CNRE_TESTS_SUPPORT_COLI_FILE_H
#define CNRE_TESTS_SUPPORT_COLI_FILE_H

#include <stdint.h>

#define COLI_FILE_HEADER_BYTES 40u

struct coli_file {
	int32_t layers, kv_lora, qk_rope, index_dim, index_layers, vocabulary;
	int32_t promised;                 /* by the header */
	uint32_t present;                 /* whole records */
	uint32_t torn_bytes;              /* of one more */
};

uint64_t coli_file_record_bytes(const struct coli_file *file);
int32_t coli_file_token(uint32_t record);
/* A layer's row, or an index layer's with is_index; the value is a float in the file. */
float coli_file_value(uint32_t record, int is_index, uint32_t layer, uint32_t column);
/* 0 or -errno. The file is empty before. */
int coli_file_write(const struct coli_file *file, int fd);

#endif
