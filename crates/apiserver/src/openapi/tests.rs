//! What clients find in the OpenAPI documents.
