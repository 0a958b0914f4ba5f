/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A family that its user describes in an INI file, for models that no one foresaw: doc/family.ini is an example of all that
 * can stand there. The file comes from whoever starts the manager, but nothing in it is believed: sizes and counts are
 * bounded, and each error is a line `file:line: what: what to do`.
 */
#ifndef CNRE_MODEL_FAMILY_FILE_H
#define CNRE_MODEL_FAMILY_FILE_H

#include "model/family.h"

#include <stddef.h>

#define FAMILY_FILE_BYTES_MAX (64u << 10)
#define FAMILY_FILE_TYPES_MAX 16u
#define FAMILY_FILE_WORD_BYTES 128u       /* the longest name, pattern or key */
#define FAMILY_FILE_MESSAGE_BYTES MODEL_MESSAGE_BYTES

struct family_file;

/* 0, -EINVAL (the file says something that it may not, or too little), -E2BIG, -ENOMEM, or the error of reading it. */
int family_file_open(struct family_file **ret_file, const char *path, char message[FAMILY_FILE_MESSAGE_BYTES]);
struct family_file *family_file_close(struct family_file *file); /* NULL is fine */

/* The same from text, under the name `path`. For family_file_open, tests and the fuzzer. */
int family_file_read(struct family_file **ret_file, const char *path, const char *text, size_t bytes,
		     char message[FAMILY_FILE_MESSAGE_BYTES]);

/* As long as the file is open. */
const struct family *family_file_family(const struct family_file *file);

#endif
