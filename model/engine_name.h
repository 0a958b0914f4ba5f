/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Under which name Colibri's engine of a family signs its history of uses (`.coli_usage` holds FNV-1a of it). Most
 * families have their engine's name; what is not in the table, a family described by its user too, signs with its own.
 */
#ifndef CNRE_MODEL_ENGINE_NAME_H
#define CNRE_MODEL_ENGINE_NAME_H

#include <stdint.h>

const char *engine_name_of(const char *family);
/* What a history of that family is signed with. */
uint32_t engine_name_id(const char *family);
/* The engine that signs so, for messages; NULL: none that is known. */
const char *engine_name_find(uint32_t id);

#endif
