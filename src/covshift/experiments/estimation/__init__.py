"""The study of estimators: their error, their intervals' coverage and their time."""
