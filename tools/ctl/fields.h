/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Typed reading of a manager's answer. A field that is absent or of another type is remembered instead of read as zero:
 * an operator must not take "the two programs differ in version" for "nothing is resident". The reader goes on, prints
 * into a buffer, and looks once at the end.
 */
#ifndef CNRE_TOOLS_CTL_FIELDS_H
#define CNRE_TOOLS_CTL_FIELDS_H

#include <jansson.h>
#include <stdint.h>

struct fields {
	const char *missing; /* the first field that was not as expected; NULL: none */
};

/* Each takes NULL for the object (a missing parent) and then returns 0, "", or NULL. */
uint64_t fields_number(struct fields *fields, const json_t *object, const char *key); /* integer, not negative */
double fields_real(struct fields *fields, const json_t *object, const char *key);     /* any finite number */
int fields_boolean(struct fields *fields, const json_t *object, const char *key);
const char *fields_string(struct fields *fields, const json_t *object, const char *key);
const json_t *fields_object(struct fields *fields, const json_t *object, const char *key);
const json_t *fields_array(struct fields *fields, const json_t *object, const char *key);

#endif
