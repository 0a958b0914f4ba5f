/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The header of one safetensors file, read as what it is: input from somebody else. Time and memory are linear in the
 * header's length (n log n for the two sorts), nothing recurses, and nothing is believed: see the list at
 * safetensors_parse. The payload is never read. Used by the catalog; knows no model family.
 */
#ifndef CNRE_MODEL_SAFETENSORS_H
#define CNRE_MODEL_SAFETENSORS_H

#include <stddef.h>
#include <stdint.h>

#define SAFETENSORS_RANK_MAX 8u
#define SAFETENSORS_MESSAGE_BYTES 512

enum model_dtype {                        /* numbered as enum cnre_dtype of cnre.h; 0: legal, but no engine part has it */
	MODEL_DTYPE_OTHER,
	MODEL_BF16,
	MODEL_F16,
	MODEL_F32,
	MODEL_U8,
	MODEL_I8,
	MODEL_F8_E4M3,
	MODEL_F8_E8M0,
	MODEL_I64,
};

struct safetensors_tensor {
	uint64_t begin, end;              /* bytes in the data area; equal for an empty tensor */
	uint32_t name_off, name_bytes;    /* in text; unescaped, NUL-terminated, no NUL inside */
	uint32_t dimension_off;           /* in dimension */
	uint8_t rank;
	uint8_t dtype;                    /* enum model_dtype */
};

struct safetensors {
	uint64_t file_bytes;
	uint64_t data_off;                /* where the data area begins in the file */
	uint32_t tensor_count;
	struct safetensors_tensor *tensor; /* in order of begin: together they cover the data area exactly */
	uint64_t *dimension;
	char *text;
};

/*
 * safetensors_open - read and check the header of a file
 *
 * @directory_fd      an open directory, or AT_FDCWD
 * @header_bytes_max  a longer header is refused before memory is asked for
 *
 * Returns:  0, or -EBADMSG (malformed or truncated), -E2BIG (beyond a bound), -EINVAL (not a regular file), -ENOMEM,
 *           errors of open and read; then message is one line that names file, tensor and bytes.
 *           *ret_file is set on success only.
 */
int safetensors_open(struct safetensors **ret_file, int directory_fd, const char *name, uint64_t header_bytes_max,
		     char message[SAFETENSORS_MESSAGE_BYTES]);
struct safetensors *safetensors_close(struct safetensors *file);

/*
 * safetensors_parse - check a header that is in memory already
 *
 * @text        header_bytes + 1 bytes from malloc; taken over in every case, rewritten in place
 * @data_bytes  what follows the header in the file
 *
 * Refused: anything but one JSON object of known form; bytes that are not UTF-8; a name twice (compared after
 * unescaping); an unknown dtype; a product of dimensions that overflows or is not end - begin; sub-byte
 * elements that do not fill their last byte; ranges that overlap, leave a gap, pass the end or stop short of it.
 * Legal: empty tensors, an empty __metadata__, spaces after the object.
 */
int safetensors_parse(struct safetensors **ret_file, char *text, uint64_t header_bytes, uint64_t data_bytes,
		      const char *name, char message[SAFETENSORS_MESSAGE_BYTES]);

static inline const char *safetensors_name(const struct safetensors *file, const struct safetensors_tensor *tensor)
{
	return file->text + tensor->name_off;
}

static inline const uint64_t *safetensors_dimensions(const struct safetensors *file,
						     const struct safetensors_tensor *tensor)
{
	return file->dimension + tensor->dimension_off;
}

#endif
