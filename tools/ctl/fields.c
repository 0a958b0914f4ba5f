/* SPDX-License-Identifier: Apache-2.0 */
/* Typed reading of JSON objects; see fields.h. */
#include "tools/ctl/fields.h"

/* The value if it has the type, else NULL and a note. */
static const json_t *take(struct fields *fields, const json_t *object, const char *key, int has_type(const json_t *))
{
	const json_t *value = json_object_get(object, key);

	if (value != NULL && has_type(value))
		return value;
	if (fields->missing == NULL)
		fields->missing = key;
	return NULL;
}

static int is_count(const json_t *value)
{
	return json_is_integer(value) && json_integer_value(value) >= 0;
}

static int is_number(const json_t *value)
{
	return json_is_number(value);
}

static int is_boolean(const json_t *value)
{
	return json_is_boolean(value);
}

static int is_string(const json_t *value)
{
	return json_is_string(value);
}

static int is_object(const json_t *value)
{
	return json_is_object(value);
}

static int is_array(const json_t *value)
{
	return json_is_array(value);
}

uint64_t fields_number(struct fields *fields, const json_t *object, const char *key)
{
	const json_t *value = take(fields, object, key, is_count);

	return value != NULL ? (uint64_t)json_integer_value(value) : 0;
}

double fields_real(struct fields *fields, const json_t *object, const char *key)
{
	const json_t *value = take(fields, object, key, is_number);

	return value != NULL ? json_number_value(value) : 0.0;
}

int fields_boolean(struct fields *fields, const json_t *object, const char *key)
{
	const json_t *value = take(fields, object, key, is_boolean);

	return value != NULL && json_is_true(value);
}

const char *fields_string(struct fields *fields, const json_t *object, const char *key)
{
	const json_t *value = take(fields, object, key, is_string);

	return value != NULL ? json_string_value(value) : "";
}

const json_t *fields_object(struct fields *fields, const json_t *object, const char *key)
{
	return take(fields, object, key, is_object);
}

const json_t *fields_array(struct fields *fields, const json_t *object, const char *key)
{
	return take(fields, object, key, is_array);
}
